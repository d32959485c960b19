// Nothing: its library exists for the header that is compiled with it.
