"""How long a candidate takes, against what, how sure that is, and how far it stands from what the device can do."""
