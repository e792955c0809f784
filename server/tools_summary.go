package server

import (
	"context"
	"fmt"
	"time"

	"tallystick/oplog"
	"tallystick/query/identity"
	"tallystick/query/summary"
)

type summaryAdded struct {
	ID         string   `json:"id"`
	Timestamp  *string  `json:"timestamp"`
	Identities []string `json:"sourceAgentIdentities"`
	Replayed   bool     `json:"replayed,omitempty"`
}

func (s *Service) addSummary(ctx context.Context, c *call) (any, *Error) {
	a := c.args
	in := summary.Summary{
		Title: a.str("title"), Text: a.str("summary"), Category: a.str("category"),
		Session: a.str("sessionId"), Timestamp: a.str("timestamp"),
	}
	if a.has("sourceAgentIdentities") {
		in.Identities = []string{}
		for _, name := range a.list("sourceAgentIdentities") {
			name, bad := c.id.resolveMe("sourceAgentIdentities", name)
			if bad != nil {
				return nil, bad
			}
			in.Identities = append(in.Identities, name)
		}
	}
	op, err := summary.NewOp(c.id.Name, in)
	if err != nil {
		return nil, s.asError(ctx, err)
	}
	op.OpID = c.op
	done, err := s.d.Log.Append(ctx, op)
	if err != nil {
		return nil, s.asError(ctx, err)
	}
	var r summary.Record
	err = s.d.Log.View(func(snap oplog.Snapshot) error {
		e, err := snap.Entry(done[0].Ref)
		if err != nil {
			return fmt.Errorf("read what was added: %w", err)
		}
		r, err = summary.NewRecord(&e, nil)
		return err
	})
	if err != nil {
		return nil, s.asError(ctx, err)
	}
	return summaryAdded{ID: r.ID, Timestamp: r.Timestamp, Identities: r.Identities, Replayed: done[0].Replayed}, nil
}

func (s *Service) getAllSummaries(ctx context.Context, c *call) (any, *Error) {
	a := c.args
	who, err := identity.ParseFilter("agentIdentity", a.str("agentIdentity"), a.has("agentIdentity"), c.id.Name)
	if err != nil {
		return nil, s.asError(ctx, err)
	}
	q := summary.Query{
		Filter: who, Category: a.str("category"), Limit: int(a.integer("limit", defaultLimit)),
		Offset: int(a.integer("offset", 0)), Label: s.labeler(),
	}
	var page summary.Page
	err = s.d.Log.View(func(snap oplog.Snapshot) (err error) {
		page, err = summary.List(snap, q)
		return err
	})
	if err != nil {
		return nil, s.asError(ctx, err)
	}
	return page, nil
}

// summary stores the summary of an imported row unless it is here.
func (w *importing) summary(ctx context.Context, r *BeadsRow) error {
	k := key(r.ID, partSummary)
	here := false
	err := w.s.d.Log.View(func(snap oplog.Snapshot) error {
		ref, ok, err := summary.Imported(snap, k)
		if err != nil || !ok {
			return err
		}
		here = true
		w.counts.AlreadyPresent++
		e, err := snap.Entry(ref)
		if err != nil {
			return fmt.Errorf("imported summary: %w", err)
		}
		was, err := summary.Decode(&e)
		if err == nil && (was.Title != r.Summary.Title || was.Text != r.Summary.Text) {
			w.counts.ChangedIgnored++
		}
		return err
	})
	if err != nil || here {
		return err
	}
	op, err := w.summaryOp(r)
	if err != nil {
		return err
	}
	return w.add(ctx, op, k, &w.counts.Summaries)
}

func (w *importing) summaryOp(r *BeadsRow) (oplog.Op, error) {
	return summary.NewOp(w.author, summary.Summary{
		Title: r.Summary.Title, Text: r.Summary.Text, Category: r.Summary.Category,
		Identities: append([]string{}, r.Summary.Sources...), Timestamp: time.UnixMilli(r.Summary.AtMillis).UTC().Format(time.RFC3339Nano),
		Import: key(r.ID, partSummary),
	})
}
