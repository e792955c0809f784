package server_test

import (
	"fmt"

	"tallystick/server"
)

// The identity of a call is made of the replica's label and the session, never
// of arguments.
func ExampleBind() {
	id, _ := server.Bind("mac", server.Session{Agent: "claude", Project: "tally", Bound: true})
	fmt.Println(id.Name)
	id, _ = server.Bind("mac", server.Session{Agent: "claude", Bound: true})
	fmt.Println(id.Name)
	_, err := server.Bind("mac", server.Session{Agent: "claude:opus", Bound: true})
	fmt.Println(string(err.JSON()))
	// Output:
	// mac:claude:tally
	// mac-claude
	// {"error":{"code":"invalid_argument","message":"the agent part of the identity contains a colon","field":"agent","hint":"give only this part; the server joins host, agent and project itself"}}
}
