"""One process keeps the store and the queue; others reach both through a socket, by the same contracts.

calls      the contracts as messages, read off their signatures
line       one socket: what is said in one turn of the loop leaves in one write
client     the engine's side: a store and a queue that ask the keeper
service    the keeper's side: answers one engine
sharing    one queue for several parties, and what a dead one leaves behind
"""
