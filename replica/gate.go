package replica

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"

	"tallystick/oplog"
)

// Membership folds genesis, admissions, labels, seals, revokes and leaves into the view "members" and
// is the gate of the log: what a device writes is held until the device is
// admitted under the label it writes under, and an author of another host
// than that label is quarantined (I9).
//
// A device's own rename (rename.go) counts from its seq on, and an incarnation
// born later may say the label that a former one has taken.
//
// An incarnation says its label in its own log, before anything else. A
// device may have been admitted twice under different labels, by two that had
// not heard of each other; without that word it would depend on the order of
// arrival which label its entries are judged by (M1).
//
// Rows of the view, a pure function of the entries present:
//
//	g + mesh (16)                  -> label  a genesis
//	a + device key (32) + ref (40) -> label  an admission; each one is kept
//	d + device key (32) + ref (40) -> label  a device's own word
//	o + origin (16) + seq (8)      -> label  the same, by incarnation
//	s + device key (32) + origin (16) + seq (8) + hash (32) + ref (40) -> nothing  a seal (L7d)
//	r, l, e, v: revokes, leaves and what follows from them (endings.go)
type Membership struct {
	mu    sync.RWMutex
	mesh  MeshID
	known map[oplog.DeviceKey]string // admitted by a proof held outside the log
	said  map[oplog.OriginID]lastWord
	// looked are the origins whose remembered word was looked up in the
	// transaction lookedIn, which is held so that no other can have its address.
	lookedIn oplog.Views
	looked   map[oplog.OriginID]bool
}

// lastWord remembers where an origin's last label stands in the view, so that
// the gate, which looks at every entry, need not search.
type lastWord struct {
	seq   uint64
	label string
	row   []byte
}

// NewMembership returns the projection and gate of one mesh. A zero mesh lets
// any genesis pass and holds the rest.
func NewMembership(mesh MeshID) *Membership {
	return &Membership{mesh: mesh, known: map[oplog.DeviceKey]string{}, said: map[oplog.OriginID]lastWord{}}
}

// Mesh is the mesh whose members these are.
func (m *Membership) Mesh() MeshID {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.mesh
}

func (m *Membership) setMesh(mesh MeshID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mesh = mesh
}

// trust lets a device pass that showed its admission before the log has it.
// The verdict is the one the log will give, only earlier.
func (m *Membership) trust(key oplog.DeviceKey, label string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.known) < maxTrusted {
		m.known[key] = label
	}
}

// maxTrusted bounds the devices that are known by proof alone.
const maxTrusted = 4096

func (m *Membership) trusted(key oplog.DeviceKey) (string, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	label, ok := m.known[key]
	return label, ok
}

// Name implements oplog.Projection.
func (m *Membership) Name() string { return MembersView }

// Version implements oplog.Projection.
func (m *Membership) Version() uint32 { return 2 }

// Kinds implements oplog.Projection.
func (m *Membership) Kinds() []string {
	return []string{KindGenesis, KindAdmit, KindLabel, KindRename, KindSeal, KindRevoke, KindLeave}
}

// RecheckKinds implements oplog.Gate.
func (m *Membership) RecheckKinds() []string { return []string{KindGenesis, KindAdmit, KindRename} }

// Apply implements oplog.Projection.
func (m *Membership) Apply(tx oplog.Tx, e *oplog.Entry) error {
	ref := e.Ref()
	switch e.Kind {
	case KindAdmit:
		key, label, err := admitOf(e)
		if err != nil {
			return err
		}
		if err := tx.Set(deviceRow('a', key, ref), []byte(label)); err != nil {
			return err
		}
		return settleActs(tx)
	case KindRevoke, KindLeave:
		return applyEnd(tx, e)
	case KindLabel, KindRename:
		label, key, err := labelOf(e)
		if err != nil {
			return err
		}
		return m.say(tx, key, ref, label)
	case KindSeal:
		return applySeal(tx, e)
	}
	mesh, label, key, err := genesisOf(e)
	if err != nil {
		return err
	}
	if err := tx.Set(append([]byte{'g'}, mesh[:]...), []byte(label)); err != nil {
		return err
	}
	if err := tx.Set(deviceRow('a', key, ref), []byte(label)); err != nil {
		return err
	}
	if err := m.say(tx, key, ref, label); err != nil {
		return err
	}
	return settleActs(tx)
}

func (m *Membership) say(tx oplog.Tx, key oplog.DeviceKey, ref oplog.Ref, label string) error {
	if err := tx.Set(deviceRow('d', key, ref), []byte(label)); err != nil {
		return err
	}
	m.mu.Lock()
	delete(m.said, ref.Origin())
	delete(m.looked, ref.Origin())
	m.mu.Unlock()
	return tx.Set(originRow(ref.Origin(), ref.Seq()), []byte(label))
}

func deviceRow(table byte, key oplog.DeviceKey, ref oplog.Ref) []byte {
	return append(append([]byte{table}, key[:]...), ref[:]...)
}

func originRow(o oplog.OriginID, seq uint64) []byte {
	return binary.BigEndian.AppendUint64(append([]byte{'o'}, o[:]...), seq)
}

// admitted reports whether the device is a member under label, be it by an
// admission or by its own rename, or under any when label is empty.
func (m *Membership) admitted(r oplog.Reader, key oplog.DeviceKey, label string) (ok bool, err error) {
	if l, known := m.trusted(key); known && (label == "" || l == label) {
		return true, nil
	}
	err = r.Scan(append([]byte{'a'}, key[:]...), nil, false, func(_, v []byte) (bool, error) {
		ok = label == "" || string(v) == label
		return !ok, nil
	})
	if ok || err != nil || label == "" {
		return ok, err
	}
	err = scanDevice(r, 'd', key, func(_ oplog.Ref, said string) { ok = ok || said == label })
	return ok, err
}

// current reports whether the device is a member now: admitted, and its log
// has not ended.
func (m *Membership) current(r oplog.Reader, key oplog.DeviceKey) (bool, error) {
	switch _, err := r.Get(append([]byte{rowEnding}, key[:]...)); {
	case err == nil:
		return false, nil
	case !errors.Is(err, oplog.ErrNotFound):
		return false, err
	}
	return m.admitted(r, key, "")
}

// saidLabel is the label that an incarnation writes under at seq, "" if it
// has not said.
func saidLabel(r oplog.Reader, o oplog.OriginID, seq uint64) (label string, err error) {
	w, err := lastWordOf(r, o, seq)
	return w.label, err
}

func lastWordOf(r oplog.Reader, o oplog.OriginID, seq uint64) (w lastWord, err error) {
	err = r.Scan(append([]byte{'o'}, o[:]...), originRow(o, seq), true, func(k, v []byte) (bool, error) {
		w = lastWord{binary.BigEndian.Uint64(k[len(k)-8:]), string(v), bytes.Clone(k)}
		return false, nil
	})
	return w, err
}

// labelAt is saidLabel with a memory. What it remembers is looked up again in
// each transaction, for the one that wrote it may have been taken back.
func (m *Membership) labelAt(views oplog.Views, o oplog.OriginID, seq uint64) (string, error) {
	m.mu.RLock()
	w, ok := m.said[o]
	sure := m.lookedIn == views && m.looked[o]
	m.mu.RUnlock()
	r := views.View(MembersView)
	if ok && seq > w.seq {
		if sure {
			return w.label, nil
		}
		switch _, err := r.Get(w.row); {
		case err == nil:
			m.mu.Lock()
			if m.lookedIn != views {
				m.lookedIn, m.looked = views, map[oplog.OriginID]bool{}
			}
			m.looked[o] = true
			m.mu.Unlock()
			return w.label, nil
		case !errors.Is(err, oplog.ErrNotFound):
			return "", err
		}
	}
	w, err := lastWordOf(r, o, math.MaxUint64)
	if err != nil {
		return "", err
	}
	if w.label != "" {
		m.mu.Lock()
		if len(m.said) >= maxTrusted {
			clear(m.said)
		}
		m.said[o] = w
		m.mu.Unlock()
	}
	if seq > w.seq {
		return w.label, nil
	}
	return saidLabel(r, o, seq)
}

// Decide implements oplog.Gate.
func (m *Membership) Decide(views oplog.Views, origin *oplog.Origin, e *oplog.Entry) (oplog.Decision, error) {
	mesh := m.Mesh()
	founds := MeshOf(origin.ID) == mesh
	if e.Kind == KindGenesis && !founds && !mesh.IsZero() {
		return oplog.Decision{Quarantine: true, Reason: "genesis of another mesh"}, nil
	}
	if e.Kind == KindGenesis || e.Kind == kindBirth && founds {
		return oplog.Decision{}, nil
	}
	if (e.Kind == KindLabel || e.Kind == KindRename) && !e.Present() {
		return oplog.Decision{Hold: true, Reason: "waits for its payload, which says under what label the next entries are written"}, nil
	}
	r := views.View(MembersView)
	if e.Kind == KindAdmit || e.Kind == KindRevoke || e.Kind == KindLeave {
		// The replay of the acts judges which count; the label of a device that is
		// no member any more may be void.
		ok, err := m.admitted(r, origin.Key, "")
		if ok || err != nil {
			return oplog.Decision{}, err
		}
		return oplog.Decision{Hold: true, Reason: "waits for the admission of device " + shortKey(origin.Key)}, nil
	}
	if e.Kind != KindLabel {
		label, err := m.labelAt(views, origin.ID, e.Seq)
		if err != nil {
			return oplog.Decision{}, err
		}
		if label != "" { // its word was let pass, so the device is admitted
			return checkHost(e, label), nil
		}
	}
	want := "" // any label will do
	if e.Kind == KindLabel {
		label, _, err := labelOf(e)
		var q *oplog.QuarantineError
		if errors.As(err, &q) {
			return oplog.Decision{Quarantine: true, Reason: q.Reason}, nil
		}
		want = label
	}
	ok, err := m.admitted(r, origin.Key, want)
	if err != nil {
		return oplog.Decision{}, err
	}
	if !ok {
		return oplog.Decision{Hold: true, Reason: "waits for the admission of device " + shortKey(origin.Key)}, nil
	}
	return checkHost(e, ""), nil
}

// checkHost is I9. Flat names carry no host and pass.
func checkHost(e *oplog.Entry, label string) oplog.Decision {
	host, _, full := strings.Cut(e.Author, ":")
	if !full || host == label {
		return oplog.Decision{}
	}
	return oplog.Decision{Quarantine: true,
		Reason: fmt.Sprintf("author %q names another host than its replica %q (I9)", e.Author, label)}
}
