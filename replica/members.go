package replica

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"

	"tallystick/oplog"
)

// MembersView is the name of the membership view, which is projection 0.
const MembersView = "members"

// Kinds that replica writes.
const (
	KindGenesis = "tally.genesis"
	KindAdmit   = "tally.admit"
	KindLabel   = "tally.label" // an incarnation says under which of its device's labels it writes
	kindBirth   = "tally.birth" // written by oplog
)

const (
	memberVersion = 1   // payload version of the kinds
	maxMemberBody = 512 // bytes; a body is about 120
)

// MeshID names a mesh. It is a hash of the origin that wrote the genesis, so
// that no other device can write a genesis for it.
type MeshID [16]byte

const meshPrefix = "tallystick mesh 0\x00"

// MeshOf is the mesh that a genesis of this origin founds.
func MeshOf(founder oplog.OriginID) (m MeshID) {
	h := sha256.New()
	h.Write([]byte(meshPrefix))
	h.Write(founder[:])
	copy(m[:], h.Sum(nil))
	return m
}

// String is "mesh_" and 32 hex digits.
func (m MeshID) String() string { return "mesh_" + hex.EncodeToString(m[:]) }

// IsZero reports whether no mesh is named.
func (m MeshID) IsZero() bool { return m == MeshID{} }

// genesisBody founds a mesh. Key and Incarnation give the entry's origin,
// which the fold checks.
type genesisBody struct {
	Mesh        []byte
	Label       string
	Key         []byte
	Incarnation []byte
}

// admitBody admits a device under a label.
type admitBody struct {
	Key   []byte
	Label string
}

// labelBody says the label of the incarnation from this entry on. Key and
// Incarnation give the entry's origin, as in a genesis.
type labelBody struct {
	Label       string
	Key         []byte
	Incarnation []byte
}

func decodeBody(e *oplog.Entry, dst any) error {
	if e.Version != memberVersion {
		return oplog.Quarantine("%s of payload version %d, this program knows %d", e.Kind, e.Version, memberVersion)
	}
	if len(e.Body) > maxMemberBody {
		return oplog.Quarantine("%s of %d bytes, limit %d", e.Kind, len(e.Body), maxMemberBody)
	}
	if err := unmarshalArrays(e.Body, dst); err != nil {
		return oplog.Quarantine("%s does not parse", e.Kind)
	}
	return nil
}

func genesisOf(e *oplog.Entry) (mesh MeshID, label string, key oplog.DeviceKey, err error) {
	var b genesisBody
	if err := decodeBody(e, &b); err != nil {
		return mesh, "", key, err
	}
	var inc oplog.Incarnation
	if len(b.Mesh) != len(mesh) || len(b.Key) != len(key) || len(b.Incarnation) != len(inc) || !labelForm.MatchString(b.Label) {
		return mesh, "", key, oplog.Quarantine("genesis with malformed fields")
	}
	copy(mesh[:], b.Mesh)
	copy(key[:], b.Key)
	copy(inc[:], b.Incarnation)
	if oplog.OriginOf(key, inc) != e.Origin || MeshOf(e.Origin) != mesh {
		return mesh, "", key, oplog.Quarantine("genesis of another origin")
	}
	return mesh, b.Label, key, nil
}

func admitOf(e *oplog.Entry) (key oplog.DeviceKey, label string, err error) {
	var b admitBody
	if err := decodeBody(e, &b); err != nil {
		return key, "", err
	}
	if len(b.Key) != len(key) || !labelForm.MatchString(b.Label) {
		return key, "", oplog.Quarantine("admission with malformed fields")
	}
	copy(key[:], b.Key)
	return key, b.Label, nil
}

func labelOf(e *oplog.Entry) (label string, key oplog.DeviceKey, err error) {
	var b labelBody
	if err := decodeBody(e, &b); err != nil {
		return "", key, err
	}
	var inc oplog.Incarnation
	if len(b.Key) != len(key) || len(b.Incarnation) != len(inc) || !labelForm.MatchString(b.Label) {
		return "", key, oplog.Quarantine("label with malformed fields")
	}
	copy(key[:], b.Key)
	copy(inc[:], b.Incarnation)
	if oplog.OriginOf(key, inc) != e.Origin {
		return "", key, oplog.Quarantine("label of another origin")
	}
	return b.Label, key, nil
}

func labelOp(self oplog.Origin, label string) (oplog.Op, error) {
	body, err := marshalArrays(&labelBody{Label: label, Key: self.Key[:], Incarnation: self.Incarnation[:]})
	return oplog.Op{Kind: KindLabel, Version: memberVersion, OpID: "label:" + self.ID.String(), Body: body}, err
}

func genesisOp(self oplog.Origin, label string) (oplog.Op, error) {
	mesh := MeshOf(self.ID)
	body, err := marshalArrays(&genesisBody{Mesh: mesh[:], Label: label, Key: self.Key[:], Incarnation: self.Incarnation[:]})
	return oplog.Op{Kind: KindGenesis, Version: memberVersion, OpID: "genesis", Body: body}, err
}

func admitOp(key oplog.DeviceKey, label string) (oplog.Op, error) {
	body, err := marshalArrays(&admitBody{Key: key[:], Label: label})
	return oplog.Op{Kind: KindAdmit, Version: memberVersion, OpID: "admit:" + key.String(), Body: body}, err
}

// Membership folds genesis, admissions and labels into the view "members" and
// is the gate of the log: what a device writes is held until the device is
// admitted under the label it writes under, and an author of another host
// than that label is quarantined (I9).
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
type Membership struct {
	mu    sync.RWMutex
	mesh  MeshID
	known map[oplog.DeviceKey]string // admitted by a proof held outside the log
	said  map[oplog.OriginID]lastWord
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
func (m *Membership) Version() uint32 { return 1 }

// Kinds implements oplog.Projection.
func (m *Membership) Kinds() []string { return []string{KindGenesis, KindAdmit, KindLabel} }

// RecheckKinds implements oplog.Gate.
func (m *Membership) RecheckKinds() []string { return []string{KindGenesis, KindAdmit} }

// Apply implements oplog.Projection.
func (m *Membership) Apply(tx oplog.Tx, e *oplog.Entry) error {
	ref := e.Ref()
	switch e.Kind {
	case KindAdmit:
		key, label, err := admitOf(e)
		if err != nil {
			return err
		}
		return tx.Set(deviceRow('a', key, ref), []byte(label))
	case KindLabel:
		label, key, err := labelOf(e)
		if err != nil {
			return err
		}
		return m.say(tx, key, ref, label)
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
	return m.say(tx, key, ref, label)
}

func (m *Membership) say(tx oplog.Tx, key oplog.DeviceKey, ref oplog.Ref, label string) error {
	if err := tx.Set(deviceRow('d', key, ref), []byte(label)); err != nil {
		return err
	}
	m.mu.Lock()
	delete(m.said, ref.Origin())
	m.mu.Unlock()
	return tx.Set(originRow(ref.Origin(), ref.Seq()), []byte(label))
}

func deviceRow(table byte, key oplog.DeviceKey, ref oplog.Ref) []byte {
	return append(append([]byte{table}, key[:]...), ref[:]...)
}

func originRow(o oplog.OriginID, seq uint64) []byte {
	return binary.BigEndian.AppendUint64(append([]byte{'o'}, o[:]...), seq)
}

// admitted reports whether the device is a member under label, or under any
// when label is empty.
func (m *Membership) admitted(r oplog.Reader, key oplog.DeviceKey, label string) (ok bool, err error) {
	if l, known := m.trusted(key); known && (label == "" || l == label) {
		return true, nil
	}
	err = r.Scan(append([]byte{'a'}, key[:]...), nil, false, func(_, v []byte) (bool, error) {
		ok = label == "" || string(v) == label
		return !ok, nil
	})
	return ok, err
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

// labelAt is saidLabel with a memory. What it remembers is looked up again
// each time, for a transaction that wrote it may have been taken back.
func (m *Membership) labelAt(r oplog.Reader, o oplog.OriginID, seq uint64) (string, error) {
	m.mu.RLock()
	w, ok := m.said[o]
	m.mu.RUnlock()
	if ok && seq > w.seq {
		switch _, err := r.Get(w.row); {
		case err == nil:
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
	r := views.View(MembersView)
	if e.Kind != KindLabel {
		label, err := m.labelAt(r, origin.ID, e.Seq)
		if err != nil {
			return oplog.Decision{}, err
		}
		if label != "" { // its word was let pass, so the device is admitted
			return checkHost(e, label), nil
		}
	}
	want := "" // any label will do
	if e.Kind == KindLabel && e.Present() {
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

func shortKey(k oplog.DeviceKey) string { return hex.EncodeToString(k[:6]) }

// Member is a device admitted to the mesh.
type Member struct {
	Key       oplog.DeviceKey
	Label     string
	Admission oplog.Ref
	// Flagged says that another device was admitted under this label before.
	// Such a device may not claim until it is renamed (I9).
	Flagged bool
}

// MembersIn lists the members of a view, by admission in C2 order. A member's
// label is what it last said itself, else that of its first admission.
func MembersIn(views oplog.Views) ([]Member, error) {
	r := views.View(MembersView)
	said := map[oplog.DeviceKey]string{}
	if err := scanDevices(r, 'd', func(key oplog.DeviceKey, _ oplog.Ref, label string) { said[key] = label }); err != nil {
		return nil, err
	}
	type labelled struct {
		key   oplog.DeviceKey
		label string
	}
	since := map[labelled]oplog.Ref{}
	var list []Member
	err := scanDevices(r, 'a', func(key oplog.DeviceKey, ref oplog.Ref, label string) {
		if at := (labelled{key, label}); since[at].IsZero() {
			since[at] = ref
		}
		if n := len(list); n > 0 && list[n-1].Key == key {
			return // a later admission of the same device
		}
		mem := Member{Key: key, Label: label, Admission: ref}
		if l, ok := said[key]; ok {
			mem.Label = l
		}
		list = append(list, mem)
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(list, func(a, b Member) int { return a.Admission.Compare(b.Admission) })
	first := map[string]oplog.Ref{}
	for _, m := range list {
		ref := since[labelled{m.Key, m.Label}]
		if f, ok := first[m.Label]; !ok || ref.Compare(f) < 0 {
			first[m.Label] = ref
		}
	}
	for i, m := range list {
		list[i].Flagged = since[labelled{m.Key, m.Label}] != first[m.Label]
	}
	return list, nil
}

// scanDevices goes through a table of device rows: by device, then in C2 order.
func scanDevices(r oplog.Reader, table byte, fn func(key oplog.DeviceKey, ref oplog.Ref, label string)) error {
	return r.Scan([]byte{table}, nil, false, func(k, v []byte) (bool, error) {
		if len(k) != 1+32+oplog.RefSize {
			return false, fmt.Errorf("%w: member row of %d bytes", oplog.ErrDamaged, len(k))
		}
		fn(oplog.DeviceKey(k[1:33]), oplog.Ref(k[33:]), string(v))
		return true, nil
	})
}

// memberIn finds one member.
func memberIn(views oplog.Views, key oplog.DeviceKey) (Member, bool, error) {
	list, err := MembersIn(views)
	for _, m := range list {
		if m.Key == key {
			return m, true, err
		}
	}
	return Member{}, false, err
}

// labelOwner finds a device that is a member under label, the first in C2
// order.
func labelOwner(views oplog.Views, label string) (oplog.DeviceKey, bool, error) {
	members, err := MembersIn(views)
	if err != nil {
		return oplog.DeviceKey{}, false, err
	}
	for _, m := range members {
		if m.Label == label {
			return m.Key, true, nil
		}
	}
	return oplog.DeviceKey{}, false, nil
}

// foundedMesh finds the one mesh a view holds a genesis of.
func foundedMesh(views oplog.Views) (mesh MeshID, ok bool, err error) {
	n := 0
	err = views.View(MembersView).Scan([]byte{'g'}, nil, false, func(k, v []byte) (bool, error) {
		copy(mesh[:], k[1:])
		n++
		return true, nil
	})
	if n != 1 {
		return MeshID{}, false, err
	}
	return mesh, true, err
}

var errNotMember = errors.New("not a member of this mesh")
