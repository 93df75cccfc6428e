"""What may be kept of a conversation: secrets and personal data are found and replaced before anything is written."""
