"""What reads labelled rows and predicts others: the protocol, and learners made of others."""
