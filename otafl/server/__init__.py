"""Server optimisers: steps of the server along the averaged increment."""
