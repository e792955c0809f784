package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// claimInfo is a claim as tools return it.
type claimInfo struct {
	Task       taskName  `json:"task"`
	Holder     string    `json:"holder"`
	Since      string    `json:"since"`
	LeaseEnds  string    `json:"lease_ends"`
	Fence      string    `json:"fence"`
	FenceFinal bool      `json:"fence_final"`
	Grade      string    `json:"grade"`
	Unheard    []unheard `json:"unheard"`
}

type ackResult struct {
	Outcome string     `json:"outcome"`
	Event   *event     `json:"event"`
	Claim   *claimInfo `json:"claim"`
	Note    string     `json:"note"`
}

func newEventsAck(a *app) *cobra.Command {
	var f struct {
		status, body, bodyFile, topic, key string
		lease                              time.Duration
	}
	cmd := &cobra.Command{
		Use:   "ack EVENT_ID [--status STATUS]",
		Short: "Acknowledge an event: claim, report on, close or release a task",
		Long: `Acknowledge an event. With --status claimed it takes the task: the first line of
the answer is won, joined, held, closed, expired or superseded, and the exit code
is 4 unless it is won or joined. The grade says whether another machine may still
have claimed earlier: settled, presumed or provisional. applied by anybody closes
the task for good, failed does when the holder says it.`,
		Example: `  tally events ack evt_20260704T101112_0123456789ab --status claimed --lease 2h
  tally events ack evt_20260704T101112_0123456789ab --status applied --body "done in 1f3c2d"`,
		Args: positional("EVENT_ID"),
		RunE: func(cmd *cobra.Command, words []string) error {
			in := args{"event_id": words[0]}
			body, err := a.body(cmd, f.body, f.bodyFile)
			if err != nil {
				return err
			}
			in.text("status", f.status).text("body", body).text("topic", f.topic).text("idempotency_key", f.key)
			if cmd.Flags().Changed("lease") {
				in["lease_ms"] = f.lease.Milliseconds()
			}
			raw, err := a.call(cmd.Context(), "event_ack", in)
			if err != nil {
				return err
			}
			err = show(a, raw, func(r ackResult) error {
				fmt.Fprintln(a.Stdout, r.Outcome)
				if r.Event != nil {
					fmt.Fprintln(a.Stdout, r.Event.ID)
				}
				if r.Claim != nil {
					a.say("%s", r.Claim.describe())
				} else if r.Note != "" {
					a.say("%s", oneLine(r.Note, 300))
				}
				return nil
			})
			if err != nil || f.status != "claimed" {
				return err
			}
			return exitIf(raw, func(r ackResult) bool { return r.Outcome != "won" && r.Outcome != "joined" }, exitConflict)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&f.status, "status", "", "claimed, ready, applied, blocked, failed, released or superseded")
	fs.StringVar(&f.body, "body", "", "text of the ack")
	fs.StringVar(&f.bodyFile, "body-file", "", "file with the text; - is stdin")
	fs.StringVar(&f.topic, "topic", "", "topic (default: that of the event)")
	fs.DurationVar(&f.lease, "lease", 12*time.Hour, "how long a claim lives without another ack")
	fs.StringVar(&f.key, "key", "", "idempotency key: a repeat with it gets the first result")
	return cmd
}

func (c *claimInfo) describe() string {
	s := "held by " + oneLine(c.Holder, 80) + ", " + c.Grade
	if c.LeaseEnds != "" {
		s += ", until " + shortTime(c.LeaseEnds)
	}
	if len(c.Unheard) > 0 {
		s += "; waits for " + c.waitsFor()
	}
	return s
}

// unheard is a member that a grade waits for, and why.
type unheard struct {
	Replica string `json:"replica"`
	Reason  string `json:"reason"`
}

func (c *claimInfo) waitsFor() string {
	names := make([]string, len(c.Unheard))
	for i, u := range c.Unheard {
		names[i] = oneLine(u.Replica, 40)
		if u.Reason != "" {
			names[i] += " (" + oneLine(u.Reason, 100) + ")"
		}
	}
	return strings.Join(names, ", ")
}
