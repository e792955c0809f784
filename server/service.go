package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"sync/atomic"
	"time"

	"tallystick/oplog"
	"tallystick/query/claim"
	"tallystick/query/logstream"
	"tallystick/query/merges"
)

// Log is what the service needs of the replica's log. replica.Replica and
// oplog.Log satisfy it. Append returns when the ops are durable; Changed is
// fetched before reading and closed at the next commit.
type Log interface {
	Append(ctx context.Context, ops ...oplog.Op) ([]oplog.Appended, error)
	View(fn func(oplog.Snapshot) error) error
	Changed() <-chan struct{}
	Self() oplog.Origin
}

// Self is what a replica calls itself.
type Self struct {
	Label   string
	Replica string // rep_ and 32 hex
	Mesh    string // mesh_ and 32 hex
}

// Mesh is what the service needs to know of the members. Its methods answer
// at once from what is known here, and are safe for concurrent use.
type Mesh interface {
	Self() Self
	// LabelOf is the label of the replica an origin belongs to, empty when it
	// is not known.
	LabelOf(origin oplog.OriginID) string
	// Spread says which members, by label, durably hold an entry as far as is
	// known here, and which do not yet. Self counts among them.
	Spread(ref oplog.Ref) (durableOn, notYet []string)
	// Horizon is what every member has promised: the basis of claim grades.
	Horizon() claim.Horizon
	// Status is the state of peers, clock and log.
	Status(ctx context.Context) (Status, error)
}

// Status is what a replica says of itself and its peers.
type Status struct {
	Peers       []Peer
	Clock       Clock
	Held        int     // entries that wait
	Quarantined int     // entries that cannot be folded
	Owed        int     // entries whose payload is asked of peers, damaged ones included
	Aside       []Aside // the first of both
	Views       []oplog.ViewInfo
	Note        string // what a person should know and do, if anything
}

// Peer is another replica as seen from here.
type Peer struct {
	Label         string
	ID            string
	Reachable     bool
	LastSeen      time.Time // zero: never
	EntriesBehind uint64    // we hold and it does not
	EntriesAhead  uint64    // it holds and we do not
	Address       string
	OffsetMillis  int64 // its wall clock minus ours
	Error         string
}

// Clock is the state of the replica's clock.
type Clock struct {
	HLC     string // latest reading
	Wall    time.Time
	Bound   time.Duration
	Outlier bool // this clock is the one that is wrong
}

// Aside is an entry that is in no view, and why.
type Aside struct {
	ID     string // of the entry
	Held   bool   // waits; otherwise quarantined
	Kind   string
	Author string
	Origin string // label, else origin id
	Reason string
}

// Deps is what a Service is built of. Log and Mesh are required.
type Deps struct {
	Log     Log
	Mesh    Mesh
	Version string
	// Invite opens the join port for one device. Nil: no invites.
	Invite func(ctx context.Context, q InviteRequest) (Invite, error)
	// Owner serves the calls for the machine's owner. Nil: they are refused.
	Owner Owner
	// Stop asks the owner process to end; it returns at once. Nil: it cannot be
	// asked.
	Stop func(StopRequest)
	// CheckLeave refuses to leave the mesh for another one when something would
	// be lost. Nil: nobody asks.
	CheckLeave func() error
	// Blobs keeps the content of artifacts. Nil: there are none.
	Blobs Blobs
	// Search finds memories, summaries and events. Nil: nothing can be searched.
	Search Searcher
	// RefuseSecrets refuses writes that likely hold a secret; otherwise the
	// answer says so.
	RefuseSecrets bool
	// Tokens and HTTPURL are the HTTP endpoint's, if there is one.
	Tokens  *Tokens
	HTTPURL func() string
	// AskFloor asks members for fresh floors after a claim was stamped, so that
	// its grade settles soon. Nil: they are not asked.
	AskFloor func(ref oplog.Ref)
	// Clashes lists the labels that a later admission has lost, Moves the renames
	// of members, and Formerly the labels that this replica had before, the latest
	// first. Nil: none are known.
	Clashes  func() []merges.LabelClash
	Moves    func() []merges.LabelMove
	Formerly func() []merges.LabelMove
	// Rename gives this replica another label. The entry is zero when it has that
	// label already. Nil: it cannot be renamed.
	Rename func(ctx context.Context, opID, label string) (from string, entry oplog.Ref, err error)
	// Translate gives errors of the layers below their code. It may be nil, and
	// return nil for what it does not know.
	Translate func(error) *Error
	Logger    *slog.Logger
}

// Service implements every tool in the owner process. It is safe for
// concurrent use and holds no goroutine.
type Service struct {
	d     Deps
	log   *slog.Logger
	waits chan struct{} // one slot per waiting call
	hub   hub
	looks atomic.Int64 // pages that waiting calls have read, for tests
	binds bindCache
}

// maxWaits bounds calls that wait for events at one time.
const maxWaits = 4096

// New builds a Service.
func New(d Deps) (*Service, error) {
	if d.Log == nil || d.Mesh == nil {
		return nil, errors.New("server: Deps.Log and Deps.Mesh are required")
	}
	if d.Version == "" {
		d.Version = "devel"
	}
	return &Service{d: d, log: logger(d.Logger), waits: make(chan struct{}, maxWaits), hub: hub{log: d.Log}}, nil
}

var _ Backend = (*Service)(nil)

// Call implements Backend: bind the identity, check the arguments, run the
// tool. Nothing is stored when it fails before the append.
func (s *Service) Call(ctx context.Context, session Session, name string, args json.RawMessage, opID string) (out json.RawMessage, bad *Error) {
	defer func() {
		if p := recover(); p != nil {
			s.log.Error("panic in a tool", "tool", name, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			out, bad = nil, internalError()
		}
	}()
	t := toolByName(name)
	if t == nil {
		e := fail(CodeNotFound, "tool", "use one of the tools listed", "there is no tool %s", quote(name))
		e.Allowed = ToolNames()
		return nil, e
	}
	id, bad := s.bind(session)
	if bad != nil {
		return nil, bad
	}
	args, caller, bad := t.takeCallerFields(args)
	if bad != nil {
		return nil, bad
	}
	a, bad := t.decode(args)
	if bad != nil {
		return nil, bad
	}
	maps.Copy(a, caller)
	for _, field := range callerFields {
		if a.has(field) {
			if bad := id.checkFrom(field, a.str(field)); bad != nil {
				return nil, bad
			}
		}
	}
	if t.write {
		if bad := id.mayWrite(); bad != nil {
			return nil, bad
		}
		if len(opID) > maxRouting/2 {
			return nil, fail(CodeTooLarge, "op_id", "use a short random id", "op_id has %d bytes, at most %d are allowed", len(opID), maxRouting/2)
		}
		if opID == "" {
			opID = NewOpID()
		}
	}
	var found []secretRow
	if t.write {
		if found, bad = s.secrets(args); bad != nil {
			return nil, bad
		}
	}
	c := &call{id: id, args: a, raw: args, op: opKey(name, opID, a.str("idempotency_key"))}
	v, bad := t.run(s, ctx, c)
	if bad != nil {
		if bad.Code == CodeIdentityUnbound && id.why != nil {
			bad = id.why
		}
		if t.write {
			s.log.Debug("call refused", "tool", name, "identity", id.Name, "client", session.Client, "code", string(bad.Code))
		}
		return nil, bad
	}
	if t.write {
		s.mintAfter(ctx, id)
		s.log.Info("stored", "tool", name, "identity", id.Name, "client", session.Client)
	}
	return withSecrets(encodeAnswer(v), found), nil
}

// opKey is the op id under which the log remembers a write. A key that the
// caller chose wins, so that another process of the same identity gets the
// first result too.
func opKey(tool, opID, key string) string {
	if key != "" {
		return tool + "/k/" + key
	}
	return tool + "/o/" + opID
}

// asError gives an error of the layers below its code. When the call's
// context was ended for a reason, that reason is the answer.
func (s *Service) asError(ctx context.Context, err error) *Error {
	if err == nil {
		return nil
	}
	if ctx != nil && ctx.Err() != nil {
		if cause := context.Cause(ctx); cause != nil && errors.Is(err, ctx.Err()) {
			err = cause
		}
	}
	if s.d.Translate != nil {
		if e := s.d.Translate(err); e != nil {
			return e
		}
	}
	e := AsError(err)
	if e.Code == CodeBusy {
		s.log.Error("call failed", "err", err)
	}
	return e
}

// labeler names origins, asking the mesh once for each.
func (s *Service) labeler() logstream.Labeler {
	known := map[oplog.OriginID]string{}
	return func(o oplog.OriginID) string {
		label, ok := known[o]
		if !ok {
			label = s.d.Mesh.LabelOf(o)
			known[o] = label
		}
		return label
	}
}

// timeText is how times leave: RFC 3339, UTC, milliseconds.
func timeText(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }
