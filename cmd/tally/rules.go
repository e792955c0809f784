package main

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"tallystick/server"
)

func newRules(a *app) *cobra.Command {
	var project string
	var same bool
	cmd := &cobra.Command{
		Use:   "rules [--agent AGENT] [--project PROJECT]",
		Short: "Print the block of rules for an agent's instruction file",
		Long: `Print the block that tells an agent its identity and how to use the log. The
identity is minted here: a new agent gets host:agent:project, one that speaks under
a flat name keeps that while it has one project. tally init writes the same block
into the files that clients read.`,
		Example: "  tally rules --agent claude\n  tally rules --agent codex --project app",
		Args:    positional(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := sessionWithin(a.agent, a.Dir, "cli", rootPatient)
			if err != nil {
				return err
			}
			q := server.IdentityRequest{Session: s, Project: project, SameProject: same, Mint: true}
			id, err := ask(cmd.Context(), a, func(ctx context.Context, c *server.Client) (server.IdentityAnswer, error) {
				if p, err := a.place(); err == nil {
					if cl, err := clientByName(s.Agent); err == nil {
						q.Spoken = cl.spoken(p, c.Label(), s.Agent)
					}
				}
				return c.Identity(ctx, q)
			})
			if err != nil {
				return err
			}
			ans := struct {
				server.IdentityAnswer
				Block string `json:"block"`
			}{id, renderBlock([]string{id.Identity})}
			return a.tell(ans, func() error {
				fmt.Fprint(a.Stdout, ans.Block)
				a.tellIdentity(id)
				return nil
			})
		},
	}
	projectFlags(cmd, &project, &same)
	return cmd
}

func projectFlags(cmd *cobra.Command, project *string, same *bool) {
	cmd.Flags().StringVar(project, "project", "", "name of the project, which the repository keeps for every agent (default: that of the repository)")
	cmd.Flags().BoolVar(same, "same-project", false, "this repository is the project already known by its name, though it looks like another")
}

func (a *app) tellIdentity(id server.IdentityAnswer) {
	a.say("%s is %s: %s", id.Agent, id.Identity, id.Why)
	for _, name := range id.Former {
		a.say("mail to %s, as it was called, is shown by tally status", name)
	}
}

// place finds out whose files to look at: a repository's, else the user's.
func (a *app) place() (place, error) {
	user, err := os.UserHomeDir()
	if err != nil {
		return place{}, noHome(err)
	}
	p := place{user: user, env: a.Getenv}
	if w, ok := server.WorkingTreeOf(a.Dir); ok {
		p.top = w.Top
	}
	return p, nil
}

// spoken finds the names that a client's instructions hold already.
func (c *client) spoken(p place, host, agent string) (names []string) {
	paths := c.more(p)
	if r := c.rules(p); r != "" {
		paths = append(paths, r)
	}
	for _, path := range paths {
		text, exists, err := readOptional(path)
		if err != nil || !exists {
			continue
		}
		for _, n := range spokenIn(string(text), host, agent) {
			if !slices.Contains(names, n) {
				names = append(names, n)
			}
		}
	}
	return names
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
