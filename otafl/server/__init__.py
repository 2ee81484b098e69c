"""Choose what the server makes of the averaged increment."""
