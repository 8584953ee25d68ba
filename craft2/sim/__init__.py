"""Virtual time, a network and faults, from one seed: what whole clusters are tested in."""
