package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// taskName names a task: its stream and correlation id, or its request.
type taskName string

// UnmarshalJSON takes a plain name, or an object whose texts make the name.
func (t *taskName) UnmarshalJSON(b []byte) error {
	var s string
	if json.Unmarshal(b, &s) == nil {
		*t = taskName(s)
		return nil
	}
	var o struct {
		Stream        string `json:"stream"`
		CorrelationID string `json:"correlation_id"`
		Request       string `json:"request"`
	}
	if err := json.Unmarshal(b, &o); err != nil {
		return fmt.Errorf("task: %w", err)
	}
	name := o.CorrelationID
	if name == "" {
		name = o.Request
	}
	*t = taskName(strings.TrimPrefix(o.Stream+" "+name, " "))
	return nil
}

func newClaims(a *app) *cobra.Command {
	var identity, correlation, stream, cursor, why string
	cmd := &cobra.Command{
		Use:   "claims",
		Short: "List live claims: who holds which task, and how sure that is",
		Long: `List live claims. settled: no machine can still turn up with an earlier claim.
presumed: the same, but for machines not heard from for a week. provisional:
somebody is waited for, and named. --why tells of one task how its holder was
decided: every claim with its stamp, and the rule.`,
		Example: "  tally claims\n  tally claims --identity @me --json\n  tally claims --why evt_20260704T101112_0123456789ab",
		Args:    positional(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("why") {
				return a.explainClaim(cmd, why)
			}
			in := args{}
			in.text("identity", identity).text("correlation_id", correlation).text("stream", stream).text("cursor", cursor)
			raw, err := a.call(cmd.Context(), "claim_list", in)
			if err != nil {
				return err
			}
			type page struct {
				Claims     []claimInfo `json:"claims"`
				HasMore    bool        `json:"has_more"`
				NextCursor string      `json:"next_cursor"`
			}
			return show(a, raw, func(p page) error {
				if len(p.Claims) == 0 {
					a.say("no live claim")
					return nil
				}
				rows := make([][]string, len(p.Claims))
				for i, c := range p.Claims {
					grade := c.Grade
					if len(c.Unheard) > 0 {
						grade += ", waits for " + c.waitsFor()
					}
					rows[i] = []string{oneLine(string(c.Task), 60), oneLine(c.Holder, 60), shortTime(c.Since), shortTime(c.LeaseEnds), grade}
				}
				if err := a.table([]string{"TASK", "HOLDER", "SINCE", "LEASE ENDS", "GRADE"}, rows); err != nil {
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
	fs.StringVar(&identity, "identity", "", "only held by this identity; @me is you")
	fs.StringVar(&correlation, "correlation", "", "only this correlation id")
	fs.StringVar(&stream, "stream", "", "only this stream")
	fs.StringVar(&why, "why", "", "explain one task: a claim, any event of it, or its correlation id")
	fs.StringVar(&cursor, "cursor", "", "go on after a page: its next_cursor")
	return cmd
}
