package server

import (
	"context"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"github.com/vmihailenco/msgpack/v5"

	"tallystick/hlc"
	"tallystick/oplog"
)

// ShowRequest asks for entries as they stand in the log: one by its id, those
// of one origin, or those stamped since a time. The newest Limit are given.
type ShowRequest struct {
	ID          string `json:"id,omitempty"`
	Origin      string `json:"origin,omitempty"` // a replica's label, or the start of an origin's id
	SinceMillis int64  `json:"since_ms,omitempty"`
	Limit       int    `json:"limit,omitempty"`
	Body        bool   `json:"body,omitempty"` // with what the payload says
}

// LogEntry is an entry as it stands in the log.
type LogEntry struct {
	Hash   string `json:"hash"`
	Origin string `json:"origin"`
	Label  string `json:"label,omitempty"` // of the replica that wrote it
	Seq    uint64 `json:"seq"`
	Prev   string `json:"prev"`
	Stamp  string `json:"stamp"`
	Time   string `json:"time"`
	// CountsAs is the stamp that an amend makes it count as (C3); empty mostly.
	CountsAs string `json:"counts_as,omitempty"`
	Kind     string `json:"kind"`
	Author   string `json:"author,omitempty"`
	Bytes    uint32 `json:"bytes"`
	Present  bool   `json:"present"` // false: erased, or not fetched yet
	Arrival  uint64 `json:"arrival"` // 0: in no view here
	Version  uint64 `json:"version"`
	OpID     string `json:"op_id,omitempty"`
	Body     any    `json:"body,omitempty"`
}

// LogEntries is a page of the log.
type LogEntries struct {
	Entries []LogEntry `json:"entries"`
	More    bool       `json:"more,omitempty"` // older ones were left out
}

const (
	defaultShow = 50
	maxShow     = 1000
)

func (s *Service) showEntries(ctx context.Context, o Owner, q ShowRequest) (page LogEntries, err error) {
	if q.Limit == 0 {
		q.Limit = defaultShow
	}
	if q.Limit < 1 || q.Limit > maxShow {
		return page, invalid("limit", "ask for fewer, with a later --since", "limit is %d, at least 1 and at most %d are allowed", q.Limit, maxShow)
	}
	page.Entries = []LogEntry{}
	err = o.Log().View(func(snap oplog.Snapshot) error {
		var list []oplog.Entry
		var err error
		switch {
		case q.ID != "":
			var e oplog.Entry
			if e, err = entryByID(snap, q.ID); err == nil {
				list = []oplog.Entry{e}
			}
		case q.Origin != "":
			list, page.More, err = ofOrigin(o, q)
		default:
			list, page.More, err = since(ctx, snap, q)
		}
		if err != nil {
			return err
		}
		for i := range list {
			row, err := logEntry(o, snap, &list[i], q.Body)
			if err != nil {
				return err
			}
			page.Entries = append(page.Entries, row)
		}
		return nil
	})
	return page, err
}

// since gives the newest visible entries that are stamped since a time, in
// order of arrival.
func since(ctx context.Context, snap oplog.Snapshot, q ShowRequest) (list []oplog.Entry, more bool, err error) {
	from := time.UnixMilli(q.SinceMillis)
	err = snap.Arrived(0, true, func(_ uint64, e *oplog.Entry) (bool, error) {
		if e.Time.Time().Before(from) {
			return true, ctx.Err()
		}
		if len(list) == q.Limit {
			more = true
			return false, nil
		}
		list = append(list, e.Clone())
		return true, ctx.Err()
	})
	slices.Reverse(list)
	return list, more, err
}

// ofOrigin gives the newest entries of one origin, held and quarantined ones
// with them.
func ofOrigin(o Owner, q ShowRequest) (list []oplog.Entry, more bool, err error) {
	var found []oplog.Origin
	want := strings.TrimPrefix(q.Origin, "rep_")
	for _, g := range o.Log().Origins() {
		if g.ID.String() == want {
			found = []oplog.Origin{g}
			break
		}
		if o.LabelOf(g.ID) == want || len(want) >= 6 && strings.HasPrefix(g.ID.String(), want) {
			found = append(found, g)
		}
	}
	if len(found) == 0 {
		return nil, false, fail(CodeNotFound, "origin", "see the labels in `tally status`", "no origin here is called %s", quote(q.Origin))
	}
	for _, g := range slices.Backward(found) { // later incarnations come later
		for _, tip := range g.Tips {
			n := uint64(q.Limit - len(list))
			after := tip.Seq - min(tip.Seq, n)
			more = more || after > 0
			run, err := lastEntries(o.Log(), g.ID, after, tip)
			if err != nil {
				return nil, false, err
			}
			list = append(run, list...)
		}
	}
	return list, more, nil
}

func lastEntries(l *oplog.Log, id oplog.OriginID, after uint64, tip oplog.Tip) (list []oplog.Entry, err error) {
	for after < tip.Seq {
		rg, err := l.ReadRange(id, after, 1<<20)
		if err != nil || rg.Count == 0 {
			return list, err
		}
		for rest := rg.Entries; len(rest) > 0 && after < tip.Seq; after++ {
			var e oplog.Entry
			if e, rest, err = oplog.ParseEntry(rest); err != nil {
				return nil, err
			}
			list = append(list, e)
		}
	}
	return list, nil
}

func logEntry(o Owner, snap oplog.Snapshot, e *oplog.Entry, body bool) (LogEntry, error) {
	row := LogEntry{Hash: e.Hash.String(), Origin: e.Origin.String(), Label: o.LabelOf(e.Origin), Seq: e.Seq, Prev: e.Prev.String(),
		Stamp: hlc.Stamp{Timestamp: e.Stamped(), Origin: e.Origin.Short()}.String(), Time: timeText(e.Stamped().Time()), Kind: e.Kind, Author: e.Author, Bytes: e.PayloadLen,
		Present: e.Present(), Version: e.Version, OpID: e.OpID}
	if e.Time != e.Stamped() {
		row.CountsAs = e.Ref().Stamp().String()
	}
	var err error
	if row.Arrival, err = snap.Arrival(e.Ref()); err != nil {
		return row, err
	}
	// What no projection has checked is not decoded.
	if body && e.Present() && row.Arrival > 0 {
		var v any
		if msgpack.Unmarshal(e.Body, &v) == nil {
			row.Body = jsonable(v)
		}
	}
	return row, nil
}

// jsonable makes what msgpack holds fit JSON: bytes as hex, keys as text.
func jsonable(v any) any {
	switch v := v.(type) {
	case []byte:
		return hex.EncodeToString(v)
	case []any:
		for i := range v {
			v[i] = jsonable(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = jsonable(v[k])
		}
	case nil, bool, string, int8, int16, int32, int64, uint8, uint16, uint32, uint64, float32, float64:
	default:
		return "?"
	}
	return v
}
