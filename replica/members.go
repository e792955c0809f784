package replica

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

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

const meshTextPrefix = "mesh_"

// String is "mesh_" and 32 hex digits.
func (m MeshID) String() string { return meshTextPrefix + hex.EncodeToString(m[:]) }

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

func shortKey(k oplog.DeviceKey) string { return hex.EncodeToString(k[:6]) }

// Member is a device admitted to the mesh.
type Member struct {
	Key       oplog.DeviceKey
	Label     string
	Admission oplog.Ref
	// Since is what gave the device its label: the admission under it, or the
	// device's own rename.
	Since oplog.Ref
	// Flagged says that another device had this label before. Such a device may
	// not claim until it is renamed (I9).
	Flagged bool
}

// MembersIn lists the current members of a view, by admission in C2 order. A member's
// label is what it last said itself, else that of its first admission.
func MembersIn(views oplog.Views) ([]Member, error) {
	r := views.View(MembersView)
	type word struct {
		label string
		since oplog.Ref // from which on it has said nothing else
		moved bool      // it had another one before
	}
	said := map[oplog.DeviceKey]word{}
	if err := scanDevices(r, 'd', func(key oplog.DeviceKey, ref oplog.Ref, label string) {
		if w, ok := said[key]; !ok || w.label != label {
			said[key] = word{label, ref, ok}
		}
	}); err != nil {
		return nil, err
	}
	type labelled struct {
		key   oplog.DeviceKey
		label string
	}
	since := map[labelled]oplog.Ref{}
	ended, void, err := endedAndVoid(r)
	if err != nil {
		return nil, err
	}
	var list []Member
	err = scanDevices(r, 'a', func(key oplog.DeviceKey, ref oplog.Ref, label string) {
		if ended[key] || void[ref] {
			return
		}
		if at := (labelled{key, label}); since[at].IsZero() {
			since[at] = ref
		}
		if n := len(list); n > 0 && list[n-1].Key == key {
			return // a later admission of the same device
		}
		list = append(list, Member{Key: key, Label: label, Admission: ref})
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(list, func(a, b Member) int { return a.Admission.Compare(b.Admission) })
	first := map[string]oplog.Ref{}
	for i := range list {
		m := &list[i]
		w, spoke := said[m.Key]
		if spoke {
			m.Label = w.label
		}
		m.Since = since[labelled{m.Key, m.Label}]
		if w.moved || m.Since.IsZero() {
			m.Since = w.since
		}
		if f, ok := first[m.Label]; !ok || m.Since.Compare(f) < 0 {
			first[m.Label] = m.Since
		}
	}
	for i, m := range list {
		list[i].Flagged = m.Since != first[m.Label]
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

// scanDevice goes through one device's rows of a table, in C2 order.
func scanDevice(r oplog.Reader, table byte, key oplog.DeviceKey, fn func(ref oplog.Ref, label string)) error {
	return r.Scan(append([]byte{table}, key[:]...), nil, false, func(k, v []byte) (bool, error) {
		if len(k) != 1+32+oplog.RefSize {
			return false, fmt.Errorf("%w: member row of %d bytes", oplog.ErrDamaged, len(k))
		}
		fn(oplog.Ref(k[33:]), string(v))
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
