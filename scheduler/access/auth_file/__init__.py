"""The auth file: who may come in, by token, client certificate or ID token, in which role.

Inside: how it is read (reading), how tokens are added and removed without touching what people
wrote around them (editing), and what all entries share (entries).
Enters: the text of the file. Leaves: an AuthFile, or errors with file, line and field.
"""
