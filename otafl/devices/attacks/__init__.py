"""What devices do that misbehave: attackers in every round, faulty devices by chance."""
