# Compiled without types: the work is done by numpy, but the calls between are faster.
