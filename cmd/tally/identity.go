package main

import (
	"os"
	"os/user"
	"strings"
	"time"

	"tallystick/server"
)

// session says on whose behalf a verb calls, and as which kind of client.
func (a *app) session(client string) (server.Session, error) { return session(a.agent, a.Dir, client) }

// session says on whose behalf this process calls (I8): --agent, or the OS
// user when there is none, with the project of the working directory. mcp
// without --agent is unbound; that is the caller's to decide.
func session(agent, dir, client string) (server.Session, error) {
	return sessionWithin(agent, dir, client, rootQuick)
}

// sessionWithin is session with another limit for looking at the repository.
func sessionWithin(agent, dir, client string, patience time.Duration) (server.Session, error) {
	s := server.Session{Agent: agent, Bound: true, Client: client}
	fillRepo(&s, dir, patience)
	if s.Agent == "" {
		s.Agent = osUser()
	}
	if s.Agent == "" {
		return server.Session{}, usage("agent", "say who acts: --agent NAME", "the name of the OS user gives no identity")
	}
	if _, err := server.Bind("replica", s); err != nil {
		return server.Session{}, err
	}
	return s, nil
}

// osUser is the agent part of a person at the command line.
func osUser() string {
	name := ""
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if name == "" {
		name = os.Getenv("USER")
	}
	if i := strings.LastIndexByte(name, '\\'); i >= 0 { // DOMAIN\name on Windows
		name = name[i+1:]
	}
	return server.CleanPart(name)
}
