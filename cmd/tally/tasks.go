package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func newTasks(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tasks",
		Short: "Hand tasks over and list those that are open",
		Example: `  tally tasks create --project x --to lap:codex:x --goal "mend the parser" --branch main --base-commit 1f3c2d0 --done "go test passes"
  tally tasks list --to @me --free`,
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	cmd.AddCommand(newTasksCreate(a), newTasksList(a))
	return cmd
}

func newTasksCreate(a *app) *cobra.Command {
	var f struct{ project, to, goal, branch, commit, done, expires, key string }
	cmd := &cobra.Command{
		Use:   "create --project P --to IDENTITY --goal TEXT --branch B --base-commit C --done TEXT",
		Short: "Ask another agent for work and print the request's id",
		Long: `Append one task.request with all that the other needs to begin. The id is printed,
and on stderr the line to give to the other. Work is taken with
tally events ack ID --status claimed.`,
		Example: `  tally tasks create --project x --to lap:codex:x --goal "mend the parser" --branch main \
      --base-commit $(git rev-parse HEAD) --done "go test passes"`,
		Args: positional(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			in := args{}
			in.text("project", f.project).text("to_agent", f.to).text("goal", f.goal).text("branch", f.branch).text("base_commit", f.commit)
			in.text("done", f.done).text("expires_at", f.expires).text("idempotency_key", f.key)
			raw, err := a.call(cmd.Context(), "task_create", in)
			if err != nil {
				return err
			}
			return show(a, raw, func(r struct {
				appendResult
				Handoff string `json:"handoff"`
			}) error {
				fmt.Fprintln(a.Stdout, r.Event.ID)
				a.say("%s", oneLine(r.Handoff, -1))
				a.sayDurable(r.DurableOn, r.NotYet, r.Replayed)
				return nil
			})
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&f.project, "project", "", "project, which names the stream (required)")
	fs.StringVar(&f.to, "to", "", "who is to do it: an identity, or * for whoever takes it (required)")
	fs.StringVar(&f.goal, "goal", "", "what is to be done (required)")
	fs.StringVar(&f.branch, "branch", "", "branch to begin from (required)")
	fs.StringVar(&f.commit, "base-commit", "", "commit to begin from, 7 to 64 hex digits (required)")
	fs.StringVar(&f.done, "done", "", "when the work counts as done (required)")
	fs.StringVar(&f.expires, "expires", "", "RFC 3339 time after which it may not be claimed")
	fs.StringVar(&f.key, "key", "", "idempotency key: a repeat with it gets the first result")
	return cmd
}

func newTasksList(a *app) *cobra.Command {
	var f struct {
		stream, to, cursor string
		free               bool
		limit              int
	}
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List tasks that nobody has closed, oldest first",
		Example: "  tally tasks list --to @me --free\n  tally tasks list --stream project/x --json",
		Args:    positional(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			in := args{}
			in.text("stream", f.stream).text("to_agent", f.to).text("cursor", f.cursor)
			if f.free {
				in["free"] = true
			}
			if f.limit != 0 || cmd.Flags().Changed("limit") {
				in["limit"] = f.limit
			}
			raw, err := a.call(cmd.Context(), "task_list", in)
			if err != nil {
				return err
			}
			type page struct {
				Tasks []struct {
					Event  string `json:"event_id"`
					Stream string `json:"stream"`
					To     string `json:"to_agent"`
					State  string `json:"state"`
					Holder string `json:"holder"`
					Grade  string `json:"grade"`
					Title  string `json:"title"`
				} `json:"tasks"`
				HasMore    bool   `json:"has_more"`
				NextCursor string `json:"next_cursor"`
			}
			return show(a, raw, func(p page) error {
				if len(p.Tasks) == 0 && !p.HasMore {
					a.say("no open task")
					return nil
				}
				rows := make([][]string, len(p.Tasks))
				for i, t := range p.Tasks {
					state := t.State
					if t.Holder != "" {
						state += " by " + t.Holder + ", " + t.Grade
					}
					rows[i] = []string{oneLine(t.Event, 64), oneLine(t.Stream, 40), oneLine(t.To, 60), oneLine(state, 100), oneLine(t.Title, 60)}
				}
				if err := a.table([]string{"REQUEST", "STREAM", "FOR", "STATE", "GOAL"}, rows); err != nil {
					return err
				}
				if p.HasMore {
					a.say("there is more: --cursor %s", p.NextCursor)
				}
				return nil
			})
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&f.stream, "stream", "", "only this stream")
	fs.StringVar(&f.to, "to", "", "only for this identity or for *; @me is you")
	fs.BoolVar(&f.free, "free", false, "only those that can be claimed now")
	fs.IntVar(&f.limit, "limit", 0, "at most so many, 1..500 (default 50)")
	fs.StringVar(&f.cursor, "cursor", "", "go on after a page: its next_cursor")
	return cmd
}
