package server

import (
	"context"
	"encoding/json"

	"tallystick/oplog"
	"tallystick/query/checkpoint"
)

type checkpointSaved struct {
	AgentID    string `json:"agent_id"`
	ID         string `json:"checkpoint_id"`
	CreatedAt  string `json:"created_at"`
	Branch     string `json:"branch,omitempty"`
	BaseCommit string `json:"base_commit,omitempty"`
	Replayed   bool   `json:"replayed,omitempty"`
	Invisible  bool   `json:"invisible,omitempty"`
	Note       string `json:"note,omitempty"`
}

func (s *Service) checkpointSave(ctx context.Context, c *call) (any, *Error) {
	in, err := checkpoint.ParseSave(c.raw, c.id.Name)
	if err != nil {
		return nil, s.asError(ctx, err)
	}
	op, err := checkpoint.NewOp(c.id.Name, in)
	if err != nil {
		return nil, s.asError(ctx, err)
	}
	op.OpID = c.op
	done, err := s.d.Log.Append(ctx, op)
	if err != nil {
		return nil, s.asError(ctx, err)
	}
	r := checkpointSaved{ID: checkpoint.ID(done[0].Hash), Replayed: done[0].Replayed}
	err = s.d.Log.View(func(snap oplog.Snapshot) error {
		e, err := snap.Entry(done[0].Ref)
		if err != nil {
			return err
		}
		rec, err := checkpoint.NewRecord(&e, nil)
		r.AgentID, r.CreatedAt, r.Branch, r.BaseCommit, r.Invisible = rec.Namespace, rec.CreatedAt, rec.Branch, rec.BaseCommit, rec.Invisible
		return err
	})
	if err != nil {
		return nil, s.asError(ctx, committed(err, r.ID))
	}
	r.Note = literal(r.AgentID)
	return r, nil
}

type checkpointResumed struct {
	Found bool `json:"found"`
	*checkpoint.Record
	AgentID string              `json:"agent_id"`
	Others  []checkpoint.Record `json:"others,omitempty"`      // saved elsewhere at the same time
	More    int                 `json:"others_more,omitempty"` // beyond those
	Note    string              `json:"note,omitempty"`
}

func (s *Service) checkpointResume(ctx context.Context, c *call) (any, *Error) {
	if c.id.Name == "" && !hasField(c.raw, "agent_id") {
		return nil, fail(CodeIdentityUnbound, "agent_id", "name a namespace, or start the server with --agent NAME", "agent_id is absent and this session is bound to no identity")
	}
	q, err := checkpoint.ParseResume(c.raw, c.id.Name)
	if err != nil {
		return nil, s.asError(ctx, err)
	}
	q.Label = s.labeler()
	var got checkpoint.Resumed
	err = s.d.Log.View(func(snap oplog.Snapshot) (err error) {
		got, err = checkpoint.Resume(snap, q)
		return err
	})
	if err != nil {
		return nil, s.asError(ctx, err)
	}
	r := checkpointResumed{Found: got.Found, AgentID: q.Namespace, Others: got.Others, More: got.More, Note: literal(q.Namespace)}
	if got.Found {
		r.Record = &got.Record
	}
	switch {
	case len(got.Others) > 0 && !got.Tip:
		r.Note = "There are later checkpoints here than the one asked for; resume one by its id."
	case len(got.Others) > 0:
		r.Note = "Other checkpoints were saved at the same time elsewhere, without knowing of this one; resume one by its id."
	}
	return r, nil
}

// hasField reports whether an arguments object names a field. What is no
// object is for the tool to refuse.
func hasField(raw json.RawMessage, name string) bool {
	var o map[string]json.RawMessage
	if len(raw) > 0 && json.Unmarshal(raw, &o) != nil {
		return true
	}
	_, ok := o[name]
	return ok
}
