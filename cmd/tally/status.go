package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"tallystick/server"
)

// meshStatus is mesh_status, as far as it is shown to people. Numbers of 64
// bits come as strings.
type meshStatus struct {
	Label       string     `json:"label"`
	Replica     string     `json:"replica"`
	Mesh        string     `json:"mesh"`
	Note        string     `json:"note"`
	Peers       []peerInfo `json:"peers"`
	Held        count      `json:"held"`
	Quarantined count      `json:"quarantined"`
	Owed        count      `json:"owed"`
	Search      *struct {
		Documents count    `json:"documents"`
		Behind    count    `json:"behind"`
		Kept      string   `json:"kept"`
		Rebuilt   []string `json:"rebuilt"`
		Fault     string   `json:"fault"`
	} `json:"search"`
	OldNames []struct {
		Name   string `json:"name"`
		Now    string `json:"now"`
		Events int    `json:"events"`
		Unread int    `json:"unread"`
	} `json:"old_names"`
	Views map[string]struct {
		Digest string `json:"digest"`
		Rows   count  `json:"rows"`
	} `json:"views"`
}

type peerInfo struct {
	Label     string `json:"label"`
	ID        string `json:"id"`
	Reachable bool   `json:"reachable"`
	LastSeen  string `json:"last_seen"`
	Behind    count  `json:"entries_behind"`
	Ahead     count  `json:"entries_ahead"`
	Address   string `json:"address"`
	OffsetMS  count  `json:"clock_offset_ms"`
	Error     string `json:"error"`
}

// count is a number that may come as a string, or a list that is counted.
type count string

func (c *count) UnmarshalJSON(b []byte) error {
	var list []json.RawMessage
	var s string
	var n json.Number
	switch {
	case json.Unmarshal(b, &s) == nil:
		*c = count(s)
	case json.Unmarshal(b, &n) == nil:
		*c = count(n)
	case json.Unmarshal(b, &list) == nil:
		*c = count(strconv.Itoa(len(list)))
	default:
		return fmt.Errorf("%s is no count", b)
	}
	return nil
}

func (c count) String() string {
	if c == "" {
		return "0"
	}
	return string(c)
}

func newStatus(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "status",
		Short:   "Show the replicas: who is reachable, who is behind, what is held or quarantined",
		Example: "  tally status\n  tally status --json | jq .peers",
		Args:    positional(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := a.session("cli")
			if err != nil {
				return err
			}
			st, err := ask(cmd.Context(), a, func(ctx context.Context, c *server.Client) (server.ProcessStatus, error) { return c.Status(ctx, s) })
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(withProcess(st))
			}
			return show(a, st.Status, func(m meshStatus) error { return a.printStatus(m, st) })
		},
	}
}

// withProcess is mesh_status and, beside its keys, what is known of the owner
// process.
func withProcess(st server.ProcessStatus) json.RawMessage {
	process, err := json.Marshal(struct {
		PID     int    `json:"pid"`
		Version string `json:"version"`
		HTTP    string `json:"http"` // empty: none is served
		Waiting int    `json:"waiting"`
	}{st.PID, st.Version, st.HTTP, st.Waiting})
	status := bytes.TrimSpace(st.Status)
	if err != nil || len(status) < 3 || status[len(status)-1] != '}' {
		return st.Status
	}
	return append(append(bytes.Clone(status[:len(status)-1]), ','), process[1:]...)
}

// owedText names what is owed, when there is any.
func owedText(n count) string {
	if n == "" || n == "0" {
		return ""
	}
	return ", owed " + string(n) + " (asked of peers; see tally quarantine)"
}

func (a *app) printStatus(m meshStatus, p server.ProcessStatus) error {
	fmt.Fprintf(a.Stdout, "replica %s (%s), mesh %s, pid %d, version %s\n", m.Label, m.Replica, m.Mesh, p.PID, p.Version)
	if p.HTTP != "" {
		fmt.Fprintf(a.Stdout, "MCP over HTTP at %s\n", p.HTTP)
	}
	if m.Note != "" {
		fmt.Fprintln(a.Stdout, oneLine(m.Note, 300))
	}
	fmt.Fprintf(a.Stdout, "held %s, quarantined %s%s\n", m.Held, m.Quarantined, owedText(m.Owed))
	if q := m.Search; q != nil {
		fmt.Fprintf(a.Stdout, "search: %s, %s behind, kept in %s\n", q.Documents.of("document", "documents"), q.Behind.of("entry", "entries"), oneLine(q.Kept, 40))
		for _, why := range q.Rebuilt {
			fmt.Fprintf(a.Stdout, "search index folded anew: %s\n", oneLine(why, 200))
		}
		if q.Fault != "" {
			fmt.Fprintf(a.Stdout, "search index does not follow: %s\n", oneLine(q.Fault, 200))
		}
	}
	for _, o := range m.OldNames {
		fmt.Fprintf(a.Stdout, "%s, %s to %s, which is %s now; read them with: tally events list --to %s\n",
			plural(o.Events, "event"), plural(o.Unread, "unread message"), oneLine(o.Name, 80), oneLine(o.Now, 80), oneLine(o.Name, 80))
	}
	if len(m.Peers) == 0 {
		fmt.Fprintln(a.Stdout, "no other replica; tally invite lets one join")
	} else {
		rows := make([][]string, len(m.Peers))
		for i, q := range m.Peers {
			state := "unreachable"
			if q.Reachable {
				state = "reachable"
			}
			seen := "never"
			if q.LastSeen != "" {
				seen = shortTime(q.LastSeen)
			}
			rows[i] = []string{oneLine(q.Label, 40), state, seen, q.Behind.String(), q.Ahead.String(), q.OffsetMS.String(), oneLine(q.Address, 60), oneLine(q.Error, 100)}
		}
		if err := a.table([]string{"PEER", "STATE", "LAST SEEN", "BEHIND", "AHEAD", "CLOCK MS", "ADDRESS", "ERROR"}, rows); err != nil {
			return err
		}
	}
	names := make([]string, 0, len(m.Views))
	for n := range m.Views {
		names = append(names, n)
	}
	slices.Sort(names)
	rows := make([][]string, len(names))
	for i, n := range names {
		rows[i] = []string{n, m.Views[n].Rows.String(), m.Views[n].Digest}
	}
	return a.table([]string{"VIEW", "ROWS", "DIGEST"}, rows)
}

// of puts the noun behind the number.
func (c count) of(one, many string) string {
	if c == "1" {
		return "1 " + one
	}
	return c.String() + " " + many
}

func plural[N int | int64 | uint64](n N, what string) string { return pluralOf(n, what, what+"s") }

func pluralOf[N int | int64 | uint64](n N, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
