package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"tallystick/query/claim"
)

// event is an event as tools return it, as far as it is shown to people.
type event struct {
	ID            string          `json:"id"`
	Seq           json.RawMessage `json:"seq"`
	Origin        string          `json:"origin"`
	Type          string          `json:"type"`
	Stream        string          `json:"stream"`
	Room          string          `json:"room"`
	Topic         string          `json:"topic"`
	FromAgent     string          `json:"from_agent"`
	ToAgent       string          `json:"to_agent"`
	CorrelationID string          `json:"correlation_id"`
	Status        string          `json:"status"`
	Body          string          `json:"body"`
	CreatedAt     string          `json:"created_at"`
	Computed      bool            `json:"computed"`
	Grade         string          `json:"grade"`
	ArtifactIDs   []string        `json:"artifact_ids"`
	Metadata      json.RawMessage `json:"metadata"`
}

func newEvents(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Append, read, wait for and acknowledge events",
		Long: `Append, read, wait for and acknowledge events. Who acts is host:agent:project: the
host is the replica's label, the agent --agent (default: the OS user), the project
the Git repository of the working directory. Outside of a repository it is
host-agent, which is another identity with another inbox.`,
		Example: `  tally events append --type task.request --stream project/x --room delegation --body "mend the parser"
  tally events list --to @me
  tally events ack evt_20260704T101112_0123456789ab --status claimed`,
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	cmd.AddCommand(newEventsAppend(a), newEventsList(a), newEventsWait(a), newEventsWatch(a), newEventsAck(a))
	return cmd
}

// eventFilter holds the flags that choose events; list, wait and watch share
// them. The flag's name on the left, the tool's field on the right.
type eventFilter struct {
	stream, room, topic, writer, correlation, status string
	since, cursor, sinceTime                         string
	types, to                                        []string
	limit                                            int
	fs                                               *pflag.FlagSet
}

func (f *eventFilter) flags(fs *pflag.FlagSet, limit bool) {
	f.fs = fs
	fs.StringVar(&f.stream, "stream", "", "only this stream, e.g. project/x")
	fs.StringVar(&f.room, "room", "", "only this room")
	fs.StringVar(&f.topic, "topic", "", "only this topic")
	fs.StringSliceVar(&f.types, "type", nil, "only this type; wait and watch take several")
	fs.StringSliceVar(&f.to, "to", nil, "only to this agent or to *; @me is you")
	fs.StringVar(&f.writer, "writer", "", "only written by this identity")
	fs.StringVar(&f.correlation, "correlation", "", "only this correlation id")
	fs.StringVar(&f.status, "status", "", "only this status")
	fs.StringVar(&f.since, "since", "", "only after this event id, in order of arrival here")
	fs.StringVar(&f.sinceTime, "since-time", "", "only from this RFC 3339 time on")
	fs.StringVar(&f.cursor, "cursor", "", "go on after a page: its next_cursor")
	if limit {
		fs.IntVar(&f.limit, "limit", 0, "at most so many, 1..500 (default 50)")
	}
}

func (f *eventFilter) args(lists bool) (args, error) {
	in := args{}
	in.text("stream", f.stream).text("room", f.room).text("topic", f.topic).text("writer", f.writer)
	in.text("correlation_id", f.correlation).text("status", f.status)
	in.text("since_event_id", f.since).text("since_created_at", f.sinceTime).text("cursor", f.cursor)
	for name, values := range map[string][]string{"type": f.types, "to_agent": f.to} {
		switch {
		case len(values) == 1:
			in[name] = values[0]
		case len(values) > 1 && lists:
			in[name] = values
		case len(values) > 1:
			flag := strings.TrimSuffix(name, "_agent")
			return nil, usage(flag, "give --"+flag+" once, or use tally events wait or watch", "--%s is given %d times", flag, len(values))
		}
	}
	if f.fs.Changed("limit") {
		in["limit"] = f.limit
	}
	return in, nil
}

// printEvent shows one event on one line, its body below when there is one.
func (a *app) printEvent(e event) {
	to := ""
	if e.ToAgent != "" {
		to = " -> " + oneLine(e.ToAgent, 80)
	}
	status := ""
	if e.Status != "" {
		status = " [" + oneLine(e.Status, 20) + "]"
	}
	id := oneLine(e.ID, 64)
	if e.Computed { // it is in no log, and told anew each time until the loss is settled
		id = "(notice)"
	}
	fmt.Fprintf(a.Stdout, "%s  %s  %s%s  %s/%s  %s%s\n", shortTime(e.CreatedAt), id,
		oneLine(e.FromAgent, 80), to, oneLine(e.Stream, 80), oneLine(e.Room, 40), oneLine(e.Type, 64), status)
	if loss := e.loss(); loss != "" {
		fmt.Fprintf(a.Stdout, "    %s\n", loss)
	}
	for _, id := range e.ArtifactIDs {
		fmt.Fprintf(a.Stdout, "    with %s\n", oneLine(id, 64))
	}
	if title := e.title(); title != "" {
		fmt.Fprintf(a.Stdout, "    %s\n", oneLine(title, 200))
	}
	if e.Body != "" {
		fmt.Fprintf(a.Stdout, "%s\n", block(e.Body, "    "))
	}
}

// mine reports whether the inbox of the caller is asked for.
func (f *eventFilter) mine() bool { return len(f.to) == 1 && f.to[0] == "@me" }

// ownAck reports whether an event is an ack that its writer gave to itself,
// and no notice: news to nobody.
func (e *event) ownAck() bool {
	return e.Type == "event.ack" && e.FromAgent == e.ToAgent && e.loss() == ""
}

// title is what an imported request is called; its body is the description.
func (e *event) title() string {
	var m struct {
		Title string `json:"title"`
	}
	if json.Unmarshal(e.Metadata, &m) != nil {
		return ""
	}
	return strings.TrimSpace(m.Title)
}

// loss says what a notice to the loser of a claim tells; empty for other
// events.
func (e *event) loss() string {
	var n struct {
		Claim     string `json:"claim"`
		Winner    string `json:"winner"`
		Rule      string `json:"rule"`
		Automatic bool   `json:"automatic"`
	}
	if json.Unmarshal(e.Metadata, &n) != nil || !n.Automatic || n.Claim == "" {
		return ""
	}
	grade := e.Grade
	if grade == "" {
		grade = "settled" // before that no ack is written
	}
	task := ""
	if e.CorrelationID != "" {
		task = " on " + oneLine(e.CorrelationID, 80)
	}
	if n.Rule == claim.RuleVoid {
		return "the claim " + oneLine(n.Claim, 64) + task + " was given up to " + oneLine(n.Winner, 64) + ", which counts no longer; the task is free, claim it again"
	}
	return "the claim " + oneLine(n.Claim, 64) + task + " is lost to " + oneLine(n.Winner, 64) + " (" + oneLine(grade, 20) + "); stop working on it"
}
