package main

// What is read at most of a file, in bytes (server.ReadSmallFile).
const (
	maxSettingsFile = 8 << 20 // of a client, or rules for agents
	maxOwnFile      = 1 << 20 // settings of a replica, the place of a watch, a report, what git keeps
	maxRootsFile    = 8 << 20 // at most maxRoots rows, each with a path
)
