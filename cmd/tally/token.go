package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"tallystick/server"
)

func newToken(a *app) *cobra.Command {
	var project string
	var rotate, unbound bool
	cmd := &cobra.Command{
		Use:   "token --agent AGENT [--project PROJECT]",
		Short: "Print the HTTP token of an identity",
		Long: `Print the bearer token with which an MCP client calls over HTTP under one
identity. HTTP has no working directory, so the project is named here. A token
with --read-only has no identity: it reads team-wide and writes nothing.`,
		Example: "  tally token --agent claude --project x\n  tally token --read-only\n  tally token --agent claude --rotate --json",
		Args:    positional(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s := server.Session{Agent: a.agent, Project: project, Bound: !unbound, Client: "cli"}
			switch {
			case unbound && (a.agent != "" || project != ""):
				return usage("read-only", "give either --read-only or an identity", "--read-only goes without --agent and --project")
			case !unbound && a.agent == "":
				return usage("agent", "give --agent NAME, or --read-only for a token that only reads", "--agent is missing")
			}
			if _, err := server.Bind("replica", s); err != nil {
				return err
			}
			q := server.TokenRequest{Session: s, Rotate: rotate}
			t, err := ask(cmd.Context(), a, func(ctx context.Context, c *server.Client) (server.TokenAnswer, error) { return c.Token(ctx, q) })
			if err != nil {
				return err
			}
			return a.tell(t, func() error {
				fmt.Fprintln(a.Stdout, t.Token)
				if t.Identity != "" {
					a.say("acts as %s", t.Identity)
				} else {
					a.say("reads only")
				}
				if t.URL != "" {
					a.say("at %s", t.URL)
				}
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&project, "project", "", "project part of the identity (default: none)")
	cmd.Flags().BoolVar(&rotate, "rotate", false, "make a new one; the old one stops working")
	cmd.Flags().BoolVar(&unbound, "read-only", false, "a token without identity")
	return cmd
}
