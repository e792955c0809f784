package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"
)

// maxStateRead is a little over what the server takes, so that its error, not
// ours, names the limit.
const maxStateRead = 2 << 20

func newCheckpoint(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "checkpoint",
		Short: "Save a working state and resume it, here or on another machine",
		Example: `  tally checkpoint save --state '{"step": 3}'
  tally checkpoint resume`,
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	cmd.AddCommand(newCheckpointSave(a), newCheckpointResume(a))
	return cmd
}

func newCheckpointSave(a *app) *cobra.Command {
	var ns namespaceFlags
	var state, file, branch, commit string
	cmd := &cobra.Command{
		Use:   "save [--state JSON | --file FILE]",
		Short: "Save a checkpoint and print its id",
		Long: `Save a state, a JSON object, with the branch and the commit of the working
directory unless others are given. What is not committed is not in it.`,
		Example: `  tally checkpoint save --state '{"step": 3, "next": "mend the parser"}'
  tally checkpoint save --file state.json --branch main`,
		Args: positional(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			given := cmd.Flags().Changed
			in := args{}
			if file != "" {
				if given("state") {
					return usage("state", "give one of them", "--state and --file are both given")
				}
				var err error
				if state, err = a.readText("file", file, maxStateRead); err != nil {
					return err
				}
			}
			if file != "" || given("state") {
				in["state"] = state
			}
			if !given("branch") {
				branch = a.git(cmd.Context(), "rev-parse", "--abbrev-ref", "HEAD")
			}
			if !given("base-commit") {
				commit = a.git(cmd.Context(), "rev-parse", "HEAD")
			}
			in.text("branch", branch).text("base_commit", commit)
			if err := ns.set(cmd, in); err != nil {
				return err
			}
			raw, err := a.call(cmd.Context(), "checkpoint_save", in)
			if err != nil {
				return err
			}
			return show(a, raw, func(r struct {
				ID     string `json:"checkpoint_id"`
				Branch string `json:"branch"`
				Commit string `json:"base_commit"`
			}) error {
				if r.Branch != "" {
					a.say("on branch %s", branchAt(r.Branch, r.Commit))
				}
				_, err := fmt.Fprintln(a.Stdout, r.ID)
				return err
			})
		},
	}
	ns.add(cmd)
	fs := cmd.Flags()
	fs.StringVar(&state, "state", "", "a JSON object")
	fs.StringVar(&file, "file", "", "file with the JSON object; - is stdin")
	fs.StringVar(&branch, "branch", "", "git branch (default: that of the working directory)")
	fs.StringVar(&commit, "base-commit", "", "git commit (default: that of the working directory)")
	return cmd
}

// git asks about the working directory; outside of a repository, and without
// git, there is no answer.
func (a *app) git(ctx context.Context, words ...string) string {
	cmd := exec.CommandContext(ctx, "git", words...)
	cmd.Dir = a.Dir
	out, err := cmd.Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

func newCheckpointResume(a *app) *cobra.Command {
	var ns namespaceFlags
	var branch, id, missing string
	cmd := &cobra.Command{
		Use:   "resume",
		Short: "Print the state of the latest checkpoint",
		Long: `Print the state of the latest checkpoint of your namespace, saved on any machine.
Where it was saved, and on which branch and commit, is said on stderr. Without
one the exit code is 3, or 0 and no output with --on-missing empty.`,
		Example: "  tally checkpoint resume\n  tally checkpoint resume --branch main --json",
		Args:    positional(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			in := args{}
			in.text("branch", branch).text("id", id)
			if cmd.Flags().Changed("on-missing") {
				in["on_missing"] = missing
			}
			if err := ns.set(cmd, in); err != nil {
				return err
			}
			raw, err := a.call(cmd.Context(), "checkpoint_resume", in)
			if err != nil {
				return err
			}
			type record struct {
				ID        string `json:"id"`
				CreatedAt string `json:"created_at"`
				Branch    string `json:"branch"`
				Commit    string `json:"base_commit"`
				Author    string `json:"author"`
				Origin    string `json:"origin"`
			}
			return show(a, raw, func(r struct {
				Found bool `json:"found"`
				record
				State  json.RawMessage `json:"state"`
				Others []record        `json:"others"`
				Note   string          `json:"note"`
			}) error {
				if !r.Found {
					a.say("no checkpoint")
					return nil
				}
				a.say("%s, saved %s by %s on %s", r.ID, shortTime(r.CreatedAt), oneLine(r.Author, 120), oneLine(r.Origin, 40))
				if r.Branch != "" || r.Commit != "" {
					a.say("branch %s", branchAt(r.Branch, r.Commit))
				}
				for _, o := range r.Others {
					a.say("also saved, elsewhere at the same time: %s, %s by %s on %s", o.ID, shortTime(o.CreatedAt), oneLine(o.Author, 120), oneLine(o.Origin, 40))
				}
				if len(r.State) > 0 {
					_, err := fmt.Fprintf(a.Stdout, "%s\n", r.State)
					return err
				}
				return nil
			})
		},
	}
	ns.add(cmd)
	fs := cmd.Flags()
	fs.StringVar(&branch, "branch", "", "only of this branch")
	fs.StringVar(&id, "id", "", "this checkpoint, chk_...")
	fs.StringVar(&missing, "on-missing", "", "error (default) or empty")
	return cmd
}

// branchAt is a branch, and its commit where one is known.
func branchAt(branch, commit string) string {
	if commit == "" {
		return oneLine(branch, 120)
	}
	return oneLine(branch, 120) + " at " + oneLine(commit, 64)
}
