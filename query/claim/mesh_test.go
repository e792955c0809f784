package claim_test

import (
	"testing"

	"tallystick/oplog"
	"tallystick/query/claim"
	"tallystick/query/imported"
	"tallystick/query/internal/foldtest"
	"tallystick/query/logstream"
)

const (
	minute = int64(60_000)
	hour   = 60 * minute
	day    = 24 * hour
)

// mesh makes entries of several devices with stamps of the test's choosing.
type mesh struct {
	t    *testing.T
	seq  map[byte]uint64
	all  []oplog.Entry
	task string
	req  oplog.Ref
}

func newMesh(t *testing.T) *mesh { return &mesh{t: t, seq: map[byte]uint64{}} }

func (m *mesh) entry(device byte, ms int64, kind, author string, body []byte) oplog.Entry {
	m.seq[device]++
	e := foldtest.Entry(device, m.seq[device], foldtest.At(ms), kind, author, body)
	m.all = append(m.all, e)
	return e
}

// request opens a task with a correlation.
func (m *mesh) request(device byte, ms int64, author string, expires int64) oplog.Entry {
	ev := logstream.Event{Type: logstream.TypeRequest, Stream: "project/x", Room: "delegation", Correlation: "task_1", Status: "open"}
	if expires != 0 {
		ev.ExpiresAt = foldtest.At(expires).Millis()
	}
	e := m.entry(device, ms, logstream.KindEvent, author, ev.Append(nil))
	m.task = claim.TaskKey(ev.Stream, ev.Correlation, imported.Key{}, e.Hash)
	m.req = e.Ref()
	return e
}

type ackOption func(*logstream.Ack)

func lease(ms int64) ackOption { return func(a *logstream.Ack) { a.LeaseMS = ms } }
func losing(ref oplog.Ref) ackOption {
	return func(a *logstream.Ack) { a.Claim, a.Of, a.Automatic = ref, ref, true }
}

func (m *mesh) ack(device byte, ms int64, author, status string, opts ...ackOption) oplog.Entry {
	a := logstream.Ack{
		Event: logstream.Event{Type: logstream.TypeAck, Stream: "project/x", Room: "delegation", Correlation: "task_1", Status: status},
		Task:  m.task, Of: m.req,
	}
	for _, o := range opts {
		o(&a)
	}
	return m.entry(device, ms, logstream.KindAck, author, a.Append(nil))
}

func (m *mesh) fold(entries ...oplog.Entry) *foldtest.Replica {
	m.t.Helper()
	r := foldtest.NewReplica(logstream.View{}, claim.View{})
	if err := r.Apply(entries...); err != nil {
		m.t.Fatal(err)
	}
	return r
}

// get folds everything, forwards and backwards, and returns the task as of ms.
func (m *mesh) get(ms int64) claim.Task {
	m.t.Helper()
	back := make([]oplog.Entry, 0, len(m.all))
	for i := len(m.all) - 1; i >= 0; i-- {
		back = append(back, m.all[i])
	}
	fwd, rev := m.fold(m.all...), m.fold(back...)
	if a, b := fwd.Tx(claim.ViewName).Dump(), rev.Tx(claim.ViewName).Dump(); a != b {
		m.t.Fatalf("M1: rows differ by order of arrival\nforwards:\n%s\nbackwards:\n%s", a, b)
	}
	task, err := claim.Get(fwd, m.task, m.horizon(ms), nil)
	if err != nil {
		m.t.Fatal(err)
	}
	return task
}

// horizon has every device's floor at ms, which settles what is older.
func (m *mesh) horizon(ms int64, floors ...claim.MemberFloor) claim.Horizon {
	h := claim.Horizon{Now: foldtest.At(ms).Time(), Members: floors}
	if len(floors) == 0 {
		for d := range m.seq {
			h.Members = append(h.Members, floor(d, ms))
		}
	}
	return h
}

func floor(device byte, ms int64) claim.MemberFloor {
	return claim.MemberFloor{Label: string(rune('a' + device)), Origin: foldtest.Origin(device), Floor: foldtest.At(ms), Complete: true}
}

func holder(t claim.Task) string {
	if t.Claim == nil {
		return ""
	}
	return t.Claim.Holder
}

func (m *mesh) wants(ms int64, who string, open bool) claim.Task {
	m.t.Helper()
	task := m.get(ms)
	if holder(task) != who || task.Open != open {
		m.t.Fatalf("at %d: holder %q open %v, want %q %v (%+v)", ms, holder(task), task.Open, who, open, task)
	}
	return task
}

const (
	alice = "mac:claude:x"
	bob   = "nas:codex:x"
	carol = "win:gemini:x"
	owner = "mac:owner:x"
)
