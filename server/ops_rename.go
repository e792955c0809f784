package server

import (
	"context"

	"tallystick/query/logstream"
)

// RenameRequest asks to give this replica another label.
type RenameRequest struct {
	Label string `json:"label"`
	OpID  string `json:"op_id,omitempty"`
}

// RenameAnswer is what a rename did.
type RenameAnswer struct {
	From    string `json:"from"`
	To      string `json:"to"`
	Renamed bool   `json:"renamed"`         // false: it had that label already
	Event   string `json:"event,omitempty"` // id of the entry
	// Flagged says that another device still has the new label since earlier, or
	// was not heard of: this one may not claim then (I9).
	Flagged bool `json:"flagged"`
}

// rename serves `tally rename` and the undo of a label's move. Its entry has no
// author: it is an act of the device.
func (s *Service) rename(ctx context.Context, q RenameRequest) (RenameAnswer, *Error) {
	if s.d.Rename == nil {
		return RenameAnswer{}, fail(CodeInvalidArgument, "", "start the replica with `tally up`", "this replica cannot be renamed")
	}
	if q.OpID == "" {
		q.OpID = NewOpID()
	}
	from, ref, err := s.d.Rename(ctx, opKey("rename", q.OpID, ""), q.Label)
	if err != nil {
		return RenameAnswer{}, s.asError(ctx, err)
	}
	ans := RenameAnswer{From: from, To: q.Label}
	if !ref.IsZero() {
		ans.Renamed, ans.Event = true, logstream.EventID(ref)
		s.log.Info("renamed", "from", from, "to", q.Label)
	}
	h := s.d.Mesh.Horizon()
	ans.Flagged = h.Flagged
	return ans, nil
}
