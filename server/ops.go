package server

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"tallystick/oplog"
	"tallystick/query/artifact"
	"tallystick/query/logstream"
	"tallystick/replica"
)

// Owner is what the calls for the machine's owner need: they look into the log
// itself, and are served on the unix socket only, never as tools.
// *replica.Replica satisfies it.
type Owner interface {
	Log() *oplog.Log
	Erase(ctx context.Context, author, opID, reason string, hashes ...oplog.Hash) (oplog.Appended, error)
	Members() []replica.Member
	LabelOf(oplog.OriginID) string
	Amend(ctx context.Context, author, opID string, lines ...oplog.Amendment) error
	Clocks() replica.Clocks
	Status() (replica.Status, error)
	Departed() ([]replica.Departed, error)
	OwnEnding() (*replica.OwnEnding, error)
	Revoke(ctx context.Context, key oplog.DeviceKey, reason, opID string) error
	Leave(ctx context.Context) (heard []string, err error)
	Readmit(ctx context.Context, key oplog.DeviceKey) error
	Label() string
	Mesh() replica.MeshID
}

func (s *Service) owner() (Owner, *Error) {
	if s.d.Owner == nil {
		return nil, fail(CodeInvalidArgument, "", "start the replica with `tally up`", "this replica does not show its log")
	}
	return s.d.Owner, nil
}

// owned is local for a call of the machine's owner. An error of the layers
// below gets its code here.
func owned[Q, A any](s *Service, fn func(context.Context, Owner, Q) (A, error)) http.HandlerFunc {
	return local(func(ctx context.Context, q Q) (answer A, bad *Error) {
		o, bad := s.owner()
		if bad != nil {
			return answer, bad
		}
		answer, err := fn(ctx, o, q)
		return answer, s.asError(ctx, err)
	})
}

// ops adds the owner's calls to the local API.
func (s *Service) ops(mux *http.ServeMux) {
	mux.HandleFunc("POST /v1/ops/verify", s.serveProgress(s.verify))
	mux.HandleFunc("POST /v1/ops/rebuild", s.serveProgress(s.rebuild))
	mux.HandleFunc("POST /v1/ops/show", owned(s, s.showEntries))
	mux.HandleFunc("POST /v1/ops/aside", owned(s, s.listAside))
	mux.HandleFunc("POST /v1/ops/erase", owned(s, s.eraseEntries))
	mux.HandleFunc("POST /v1/ops/erasures", owned(s, s.listErasures))
	mux.HandleFunc("POST /v1/ops/clock", owned(s, s.showClock))
	mux.HandleFunc("POST /v1/ops/amend", owned(s, s.amend))
	mux.HandleFunc("POST /v1/ops/rename", local(s.rename))
	mux.HandleFunc("POST /v1/ops/members", owned(s, s.members))
	mux.HandleFunc("POST /v1/ops/revoke", owned(s, s.revoke))
	mux.HandleFunc("POST /v1/ops/readmit", owned(s, s.readmit))
	mux.HandleFunc("POST /v1/ops/leave", owned(s, s.leave))
	mux.HandleFunc("POST /v1/ops/health", owned(s, s.health))
	mux.HandleFunc("POST /v1/ops/export", s.serveExport)
	mux.HandleFunc("POST /v1/ops/import", s.serveImport)
}

// LogView is one view as counted.
type LogView struct {
	Name   string `json:"name"`
	Rows   uint64 `json:"rows"`
	Digest string `json:"digest"`
}

func logViews(l *oplog.Log) []LogView {
	list := []LogView{}
	for _, v := range l.Views() {
		list = append(list, LogView{v.Name, v.Rows, v.Digest})
	}
	return list
}

// Rebuilt is what a rebuild found before and left behind.
type Rebuilt struct {
	Entries uint64    `json:"entries"`
	Before  []LogView `json:"before"`
	After   []LogView `json:"after"`
	Same    bool      `json:"same"` // no digest has changed
}

func (s *Service) rebuild(ctx context.Context, o Owner, progress func(done, total uint64)) (any, error) {
	r := Rebuilt{Before: logViews(o.Log())}
	// What arrives meanwhile would change digests that say nothing of the
	// rebuild: they are compared only when nothing did.
	err := o.Log().Rebuild(ctx, func(done, total uint64) { r.Entries = done; progress(done, total) })
	if err != nil {
		return nil, err
	}
	r.After = logViews(o.Log())
	r.Same = slices.Equal(r.Before, r.After)
	return r, nil
}

// Verified is what a verification found.
type Verified struct {
	Entries  uint64    `json:"entries"`
	Payloads uint64    `json:"payloads"`
	Heads    int       `json:"heads"`
	Rows     uint64    `json:"rows"`
	Findings []string  `json:"findings"`
	InViews  []string  `json:"in_views"` // views that a rebuild mends
	InLog    int       `json:"in_log"`   // findings that it does not
	More     bool      `json:"more,omitempty"`
	Views    []LogView `json:"views"`
}

func (s *Service) verify(ctx context.Context, o Owner, progress func(done, total uint64)) (any, error) {
	v, err := o.Log().Verify(ctx, progress)
	if err != nil {
		return nil, err
	}
	if _, err := o.Log().SettleDamage(ctx); err != nil { // what is damaged is asked of peers from here on
		return nil, err
	}
	out := Verified{Entries: v.Entries, Payloads: v.Payloads, Heads: v.Heads, Rows: v.Rows, More: v.More, Findings: []string{}, InViews: []string{}, Views: logViews(o.Log())}
	for _, f := range v.Findings {
		out.Findings = append(out.Findings, f.String())
		if f.View == "" {
			out.InLog++
		} else if !slices.Contains(out.InViews, f.View) {
			out.InViews = append(out.InViews, f.View)
		}
	}
	return out, nil
}

// AsideEntry is an entry that is in no view or, if damaged, not to be read.
type AsideEntry struct {
	ID      string `json:"id"`
	Hash    string `json:"hash_tag"` // first 16 hex digits of its hash
	State   string `json:"state"`    // held, quarantined, owed, damaged or beyond_cut
	Kind    string `json:"kind"`
	Author  string `json:"author,omitempty"`
	Origin  string `json:"origin"` // label of the replica that wrote it, else the origin's id
	Seq     uint64 `json:"seq"`
	Reason  string `json:"reason"`
	Stamp   string `json:"stamp"`
	LeadMS  int64  `json:"lead_ms,omitempty"` // how far its stamp lies ahead of this machine's clock
	Release string `json:"release,omitempty"` // when its time comes by this machine's clock
}

// AsideList is all that is set aside.
type AsideList struct {
	Entries     []AsideEntry `json:"entries"`
	Held        int          `json:"held"`
	Quarantined int          `json:"quarantined"`
	Owed        int          `json:"owed"`       // all without their payload, held and damaged ones included
	Beyond      int          `json:"beyond_cut"` // of devices that are no members any more
	More        bool         `json:"more,omitempty"`
}

const maxAsideList = 1000

func (s *Service) listAside(_ context.Context, o Owner, _ struct{}) (out AsideList, err error) {
	list, err := o.Log().Aside(maxAsideList + 1)
	if err != nil {
		return out, err
	}
	out.Entries = []AsideEntry{}
	if len(list) > maxAsideList {
		list, out.More = list[:maxAsideList], true
	}
	for _, a := range list {
		tag := a.Ref.Tag()
		e := AsideEntry{ID: logstream.EventID(a.Ref), Hash: hex.EncodeToString(tag[:]), State: "quarantined", Kind: a.Kind, Author: a.Author,
			Origin: originName(o, a.Ref.Origin()), Seq: a.Ref.Seq(), Reason: a.Reason, Stamp: a.Ref.Stamp().String()}
		switch {
		case a.Beyond:
			e.State = "beyond_cut"
			out.Beyond++
		case a.Held:
			e.State = "held"
			out.Held++
			if lead, far := o.Log().LeadOf(a.Ref); far {
				e.LeadMS = lead
				e.Release = timeText(a.Ref.Time().Time().Add(-o.Log().Bound()))
			}
		case a.Owed:
			e.State = "owed"
		default:
			out.Quarantined++
		}
		out.Entries = append(out.Entries, e)
	}
	out.Owed = o.Log().OwedTotal()
	for after, more := "", out.Owed > 0; more && !out.More; more = after != "" {
		var owed []oplog.OwedEntry
		if owed, after, err = o.Log().Owed(after, maxAsideList); err != nil {
			return out, err
		}
		for _, e := range owed {
			if !e.Damaged {
				continue // in the list above
			}
			if out.More = len(out.Entries) >= maxAsideList; out.More {
				break
			}
			tag := e.Ref.Tag()
			out.Entries = append(out.Entries, AsideEntry{ID: logstream.EventID(e.Ref), Hash: hex.EncodeToString(tag[:]), State: "damaged", Kind: e.Kind,
				Author: e.Author, Origin: originName(o, e.Origin), Seq: e.Seq, Stamp: e.Ref.Stamp().String(),
				Reason: "its bytes on this disk have changed; it is asked of peers, and given to nobody meanwhile"})
		}
	}
	return out, nil
}

func originName(o Owner, id oplog.OriginID) string {
	if label := o.LabelOf(id); label != "" {
		return label
	}
	return id.String()
}

// EraseRequest names content to erase by the ids that listings show.
type EraseRequest struct {
	Session Session  `json:"session"`
	IDs     []string `json:"ids"`
	Reason  string   `json:"reason"`
	OpID    string   `json:"op_id"`
	// DryRun only says what the ids stand for.
	DryRun bool `json:"dry_run,omitempty"`
}

// ErasedEntry is what an id of an erase stands for.
type ErasedEntry struct {
	ID      string `json:"id"`
	Hash    string `json:"hash"`
	Kind    string `json:"kind"`
	Author  string `json:"author,omitempty"`
	Time    string `json:"time"`
	Bytes   uint32 `json:"bytes"`
	Already bool   `json:"already,omitempty"` // its bytes were gone before
}

// EraseAnswer is what became of an erase.
type EraseAnswer struct {
	Erase    string          `json:"erase,omitempty"` // hash of the erase entry
	Entries  []ErasedEntry   `json:"entries"`
	Replicas []EraseReplicas `json:"replicas"`
}

// EraseReplicas says of one replica whether an erase's bytes are off its disk.
type EraseReplicas struct {
	Label   string `json:"label"`
	Applied bool   `json:"applied"`
}

func (s *Service) eraseEntries(ctx context.Context, o Owner, q EraseRequest) (ans EraseAnswer, err error) {
	id, bad := s.bindWriter(q.Session)
	if bad != nil {
		return ans, bad
	}
	if len(q.IDs) == 0 || len(q.IDs) > oplog.MaxEraseHashes {
		return ans, invalid("ids", "name fewer in one call", "%d ids, at least 1 and at most %d are allowed", len(q.IDs), oplog.MaxEraseHashes)
	}
	ans.Entries, ans.Replicas = []ErasedEntry{}, []EraseReplicas{}
	var hashes []oplog.Hash
	err = o.Log().View(func(snap oplog.Snapshot) error {
		for _, id := range q.IDs {
			e, err := entryByID(snap, id)
			if err != nil {
				return err
			}
			if !o.Log().Erasable(e.Kind) {
				return structural(id, e.Kind)
			}
			ans.Entries = append(ans.Entries, ErasedEntry{ID: id, Hash: e.Hash.String(), Kind: e.Kind, Author: e.Author,
				Time: timeText(e.Time.Time()), Bytes: e.PayloadLen, Already: !e.Present()})
			if e.Present() && !slices.Contains(hashes, e.Hash) {
				hashes = append(hashes, e.Hash)
			}
		}
		return nil
	})
	if err != nil || q.DryRun || len(hashes) == 0 {
		return ans, err
	}
	if q.OpID == "" {
		q.OpID = NewOpID()
	}
	a, err := o.Erase(ctx, id.Name, opKey("erase", q.OpID, ""), q.Reason, hashes...)
	if err != nil {
		return ans, err
	}
	ans.Erase = a.Hash.String()
	list, err := erasures(o)
	if err != nil {
		return ans, err
	}
	for _, e := range list {
		if e.Erase == ans.Erase {
			ans.Replicas = e.Replicas
		}
	}
	s.log.Info("erased", "identity", id.Name, "entries", len(hashes))
	return ans, nil
}

func structural(id, kind string) *Error {
	return invalid("id", "claims, acks, admissions and the like stay, for the verdicts that hang on them; content such as events, summaries, memories and artifacts can be erased",
		"%s is of kind %q, which cannot be erased", quote(id), kind)
}

// entryByID finds the entry that an id of any listing stands for.
func entryByID(snap oplog.Snapshot, id string) (oplog.Entry, error) {
	var prefix []byte
	var second time.Time
	var err error
	switch {
	case strings.HasPrefix(id, "evt_"):
		if second, prefix, err = logstream.ParseEventID("id", id); err != nil {
			return oplog.Entry{}, err
		}
	case strings.HasPrefix(id, "art_"):
		ref, found, err := artifact.Find(snap, id)
		if err != nil {
			return oplog.Entry{}, err
		}
		if !found {
			return oplog.Entry{}, noEntry(id)
		}
		return snap.Entry(ref)
	case strings.HasPrefix(id, "sum_"), strings.HasPrefix(id, "mem_"):
		if len(id) == 4+16 {
			prefix, err = hex.DecodeString(id[4:])
		}
	case len(id) >= 12 && len(id) <= 64 && len(id)%2 == 0:
		prefix, err = hex.DecodeString(id)
	}
	if err != nil || prefix == nil {
		return oplog.Entry{}, invalid("id", "copy it from a listing: evt_..., sum_..., mem_..., art_..., or an entry's hash", "%s is no id of an entry", quote(id))
	}
	e, err := snap.ByHash(prefix)
	if errors.Is(err, oplog.ErrNotFound) || err == nil && !second.IsZero() && !e.Time.Time().Truncate(time.Second).Equal(second) &&
		!e.Stamped().Time().Truncate(time.Second).Equal(second) {
		return oplog.Entry{}, noEntry(id)
	}
	return e, err
}

func noEntry(id string) *Error {
	return fail(CodeNotFound, "id", "it may not have arrived here yet, or the id is mistyped", "there is no entry %s here", quote(id))
}

// EraseState is one erase and who has applied it.
type EraseState struct {
	Erase    string          `json:"erase"`
	Time     string          `json:"time"`
	Author   string          `json:"author,omitempty"`
	Reason   string          `json:"reason,omitempty"`
	Hashes   []string        `json:"hashes"`
	Replicas []EraseReplicas `json:"replicas"`
}

func (s *Service) listErasures(_ context.Context, o Owner, _ struct{}) (map[string]any, error) {
	list, err := erasures(o)
	return map[string]any{"erasures": list}, err
}

func erasures(o Owner) ([]EraseState, error) {
	var raw []replica.EraseStatus
	err := o.Log().View(func(snap oplog.Snapshot) (err error) {
		raw, err = replica.Erasures(snap)
		return err
	})
	if err != nil {
		return nil, err
	}
	device := map[oplog.OriginID]oplog.DeviceKey{}
	for _, g := range o.Log().Origins() {
		device[g.ID] = g.Key
	}
	members := o.Members()
	list := []EraseState{}
	for _, r := range raw {
		e := EraseState{Erase: r.Erase.String(), Time: timeText(r.Ref.Time().Time()), Author: r.Author, Reason: r.Reason, Hashes: []string{}, Replicas: []EraseReplicas{}}
		for _, h := range r.Hashes {
			e.Hashes = append(e.Hashes, h.String())
		}
		for _, m := range members {
			done := slices.ContainsFunc(r.Applied, func(id oplog.OriginID) bool { return device[id] == m.Key })
			e.Replicas = append(e.Replicas, EraseReplicas{m.Label, done})
		}
		list = append(list, e)
	}
	return list, nil
}

// Health is what the owner process knows for `tally doctor`.
type Health struct {
	Label       string      `json:"label"`
	Origin      string      `json:"origin"`
	Mesh        string      `json:"mesh"`
	Addresses   []string    `json:"addresses"`
	Entries     uint64      `json:"entries"`
	Views       []LogView   `json:"views"`
	Doubt       string      `json:"doubt,omitempty"`
	Ended       string      `json:"ended,omitempty"` // how this device ceased to be a member
	Forks       []string    `json:"forks"`
	Broken      []string    `json:"broken_promises,omitempty"` // whose floors are not kept, and how
	Held        int         `json:"held"`
	Quarantined int         `json:"quarantined"`
	Owed        int         `json:"owed"` // without their payload, damaged ones included
	Damage      Damage      `json:"damage"`
	Paused      bool        `json:"paused"`
	Flagged     bool        `json:"flagged"`
	Outlier     bool        `json:"outlier"`
	OffsetMS    int64       `json:"offset_ms"`
	BoundMS     int64       `json:"bound_ms"`
	ErasePend   int         `json:"erase_pending"`
	Peers       []PeerState `json:"peers"`
}

// Damage counts the entries whose stored bytes did not verify.
type Damage struct {
	Found   uint64 `json:"found"`   // ever
	Mended  uint64 `json:"mended"`  // of these: fetched again from peers, or erased since
	Waiting int    `json:"waiting"` // for a peer that has them
}

// PeerState is one peer for `tally doctor`.
type PeerState struct {
	Label     string `json:"label"`
	Reachable bool   `json:"reachable"`
	LastSeen  string `json:"last_seen,omitempty"`
	OffsetMS  int64  `json:"offset_ms"`
	Behind    uint64 `json:"behind"`
	Ahead     uint64 `json:"ahead"`
	Address   string `json:"address,omitempty"`
	Error     string `json:"error,omitempty"`
}

func (s *Service) health(_ context.Context, o Owner, _ struct{}) (Health, error) {
	st, err := o.Status()
	if err != nil {
		return Health{}, err
	}
	h := Health{Label: st.Label, Origin: st.Origin.String(), Mesh: st.Mesh.String(), Addresses: st.Addresses, Entries: st.Entries,
		Views: logViews(o.Log()), Doubt: st.Doubt, Forks: []string{}, Held: st.HeldTotal, Quarantined: st.Unfoldable, Paused: st.Paused,
		Owed: st.Owed, Damage: Damage{Found: st.Damage.Found, Mended: st.Damage.Mended, Waiting: st.Damage.Waiting},
		Flagged: st.Flagged, Outlier: st.Clock.Outlier, OffsetMS: st.Clock.Offset.Milliseconds(), BoundMS: st.Clock.Bound.Milliseconds(),
		ErasePend: o.Log().ErasePending(), Peers: []PeerState{}}
	switch own, err := o.OwnEnding(); {
	case err != nil:
		return Health{}, err
	case own != nil:
		h.Ended = own.String()
	}
	for _, g := range o.Log().Origins() {
		if g.Forked() {
			h.Forks = append(h.Forks, fmt.Sprintf("%s (%s): %d branches", originName(o, g.ID), g.ID, len(g.Tips)))
		}
	}
	for i := range st.Broken {
		h.Broken = append(h.Broken, st.Broken[i].String())
	}
	for _, p := range st.Peers {
		row := PeerState{Label: p.Label, Reachable: p.Reachable, OffsetMS: p.ClockOffset.Milliseconds(), Behind: p.EntriesBehind,
			Ahead: p.EntriesAhead, Address: p.Address, Error: p.Error}
		if !p.LastSeen.IsZero() {
			row.LastSeen = timeText(p.LastSeen)
		}
		h.Peers = append(h.Peers, row)
	}
	return h, nil
}
