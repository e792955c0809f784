package replica

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/vmihailenco/msgpack/v5"

	"tallystick/oplog"
)

// MembersView is the name of the membership view, which is projection 0.
const MembersView = "members"

// Kinds that replica writes.
const (
	KindGenesis = "tally.genesis"
	KindAdmit   = "tally.admit"
	kindBirth   = "tally.birth" // written by oplog
)

const (
	memberVersion = 1   // payload version of both kinds
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
	_msgpack    struct{} `msgpack:",as_array"`
	Mesh        []byte
	Label       string
	Key         []byte
	Incarnation []byte
}

// admitBody admits a device under a label.
type admitBody struct {
	_msgpack struct{} `msgpack:",as_array"`
	Key      []byte
	Label    string
}

func decodeBody(e *oplog.Entry, dst any) error {
	if e.Version != memberVersion {
		return oplog.Quarantine("%s of payload version %d, this program knows %d", e.Kind, e.Version, memberVersion)
	}
	if len(e.Body) > maxMemberBody {
		return oplog.Quarantine("%s of %d bytes, limit %d", e.Kind, len(e.Body), maxMemberBody)
	}
	r := bytes.NewReader(e.Body)
	if err := msgpack.NewDecoder(r).Decode(dst); err != nil || r.Len() != 0 {
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

func genesisOp(self oplog.Origin, label string) (oplog.Op, error) {
	mesh := MeshOf(self.ID)
	body, err := msgpack.Marshal(&genesisBody{Mesh: mesh[:], Label: label, Key: self.Key[:], Incarnation: self.Incarnation[:]})
	return oplog.Op{Kind: KindGenesis, Version: memberVersion, OpID: "genesis", Body: body}, err
}

func admitOp(key oplog.DeviceKey, label string) (oplog.Op, error) {
	body, err := msgpack.Marshal(&admitBody{Key: key[:], Label: label})
	return oplog.Op{Kind: KindAdmit, Version: memberVersion, OpID: "admit:" + key.String(), Body: body}, err
}

// Membership folds genesis and admissions into the view "members" and is the
// gate of the log: what a device writes is held until the device is admitted,
// and an author of another host than its device is quarantined (I9).
//
// Rows of the view, a pure function of the entries present (M1):
//
//	g + mesh (16)                  -> label           a genesis
//	a + device key (32) + ref (40) -> label           an admission, each one kept
//
// A device's label is that of its first admission in C2 order; so is a
// label's owner the first device in C2 order. Both are worked out on reading, not stored.
type Membership struct {
	mu    sync.RWMutex
	mesh  MeshID
	known map[oplog.DeviceKey]string // admitted by a proof held outside the log
}

// NewMembership returns the projection and gate of one mesh. A zero mesh lets
// any genesis pass and holds the rest.
func NewMembership(mesh MeshID) *Membership {
	return &Membership{mesh: mesh, known: map[oplog.DeviceKey]string{}}
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
func (m *Membership) Kinds() []string { return []string{KindGenesis, KindAdmit} }

// RecheckKinds implements oplog.Gate.
func (m *Membership) RecheckKinds() []string { return m.Kinds() }

// Apply implements oplog.Projection.
func (m *Membership) Apply(tx oplog.Tx, e *oplog.Entry) error {
	var key oplog.DeviceKey
	var label string
	var err error
	if e.Kind == KindGenesis {
		var mesh MeshID
		if mesh, label, key, err = genesisOf(e); err != nil {
			return err
		}
		if err := tx.Set(append([]byte{'g'}, mesh[:]...), []byte(label)); err != nil {
			return err
		}
	} else if key, label, err = admitOf(e); err != nil {
		return err
	}
	ref := e.Ref()
	row := append(append([]byte{'a'}, key[:]...), ref[:]...)
	return tx.Set(row, []byte(label))
}

// labelIn is the label a device was first admitted under.
func labelIn(r oplog.Reader, key oplog.DeviceKey) (label string, ref oplog.Ref, ok bool, err error) {
	prefix := append([]byte{'a'}, key[:]...)
	err = r.Scan(prefix, nil, false, func(k, v []byte) (bool, error) {
		if ref, err = oplog.RefOf(k[len(prefix):]); err != nil {
			return false, err
		}
		label, ok = string(v), true
		return false, nil
	})
	return label, ref, ok, err
}

// Decide implements oplog.Gate.
func (m *Membership) Decide(views oplog.Views, origin *oplog.Origin, e *oplog.Entry) (oplog.Decision, error) {
	mesh := m.Mesh()
	if e.Kind == KindGenesis || e.Kind == kindBirth && MeshOf(origin.ID) == mesh {
		if mesh.IsZero() || MeshOf(origin.ID) == mesh {
			return oplog.Decision{}, nil
		}
		return oplog.Decision{Quarantine: true, Reason: "genesis of another mesh"}, nil
	}
	label, _, ok, err := labelIn(views.View(MembersView), origin.Key)
	if err != nil {
		return oplog.Decision{}, err
	}
	if !ok {
		label, ok = m.trusted(origin.Key)
	}
	if !ok {
		return oplog.Decision{Hold: true, Reason: "waits for the admission of device " + shortKey(origin.Key)}, nil
	}
	if host, _, full := strings.Cut(e.Author, ":"); full && host != label {
		return oplog.Decision{Quarantine: true,
			Reason: fmt.Sprintf("author %q names another host than its replica %q (I9)", e.Author, label)}, nil
	}
	return oplog.Decision{}, nil
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

// MembersIn lists the members of a view, by admission in C2 order.
func MembersIn(views oplog.Views) ([]Member, error) {
	r := views.View(MembersView)
	var list []Member
	err := r.Scan([]byte{'a'}, nil, false, func(k, v []byte) (bool, error) {
		if len(k) != 1+32+oplog.RefSize {
			return false, fmt.Errorf("%w: member row of %d bytes", oplog.ErrDamaged, len(k))
		}
		mem := Member{Label: string(v)}
		copy(mem.Key[:], k[1:])
		copy(mem.Admission[:], k[33:])
		if n := len(list); n > 0 && list[n-1].Key == mem.Key {
			return true, nil // a later admission of the same device
		}
		list = append(list, mem)
		return true, nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(list, func(a, b Member) int { return a.Admission.Compare(b.Admission) })
	owner := map[string]bool{}
	for i := range list {
		list[i].Flagged = owner[list[i].Label]
		owner[list[i].Label] = true
	}
	return list, nil
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
