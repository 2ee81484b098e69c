"""Power policies, which set the transmit scalars of the devices and the receive scaling."""
