package replica

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/vmihailenco/msgpack/v5"

	"tallystick/hlc"
	"tallystick/oplog"
)

// Limits of a proof: it rides in a TLS certificate, whose message may have
// 256 KiB in all.
const (
	maxLinks      = 16
	maxLinkBytes  = 48 << 10
	maxProofBytes = 160 << 10
)

// link is one step of a proof: a run of chained entries of one origin, the
// payload kept only where it is the genesis or the admission meant, up to a
// head the device signed (L4).
type link struct {
	Key         []byte
	Incarnation []byte
	Entries     []byte
	Head        []byte
}

// proof leads from the genesis, which the mesh id certifies, admission by
// admission to a device. Whoever knows the mesh id can check it, without
// having heard of any of the devices in it.
type proof []link

func (p proof) encode() ([]byte, error) { return marshalArrays([]link(p)) }

func decodeProof(b []byte) (proof, error) {
	if len(b) > maxProofBytes {
		return nil, fmt.Errorf("proof of %d bytes, limit %d", len(b), maxProofBytes)
	}
	var p proof
	if err := unmarshalMany(b, &p, 1+5*maxLinks); err != nil { // a link is an array of four
		return nil, err
	}
	if len(p) > maxLinks {
		return nil, fmt.Errorf("proof of %d links, limit %d", len(p), maxLinks)
	}
	return p, nil
}

// append adds a link. Of a long chain the middle goes: the verifier then
// has to know the member the rest begins with.
func (p proof) append(l link) proof {
	q := append(append(proof{}, p...), l)
	if len(q) > maxLinks {
		q = q[len(q)-maxLinks:]
	}
	return q
}

// verify checks the proof for a device and returns the label it was admitted
// under. known says who is a member anyway.
func (p proof) verify(mesh MeshID, device oplog.DeviceKey, known func(oplog.DeviceKey) bool) (string, error) {
	if len(p) == 0 {
		return "", errors.New("no admission shown")
	}
	admitted := map[oplog.DeviceKey]string{}
	for i := range p {
		admitter, key, label, _, err := p[i].check(mesh)
		if err != nil {
			return "", fmt.Errorf("link %d: %w", i+1, err)
		}
		if _, ok := admitted[admitter]; !ok && admitter != key && !known(admitter) {
			return "", fmt.Errorf("link %d: device %s is no member here", i+1, shortKey(admitter))
		}
		if _, ok := admitted[key]; !ok {
			admitted[key] = label
		}
	}
	label, ok := admitted[device]
	if !ok {
		return "", fmt.Errorf("it admits other devices, not %s", shortKey(device))
	}
	return label, nil
}

// check verifies one link by itself: admitter is who signed it, key who it
// admits, as of at. For a genesis the two are the same, and for nothing else.
func (l *link) check(mesh MeshID) (admitter, key oplog.DeviceKey, label string, at hlc.Timestamp, err error) {
	fail := func(format string, args ...any) (oplog.DeviceKey, oplog.DeviceKey, string, hlc.Timestamp, error) {
		return oplog.DeviceKey{}, oplog.DeviceKey{}, "", 0, fmt.Errorf(format, args...)
	}
	var inc oplog.Incarnation
	if len(l.Key) != len(admitter) || len(l.Incarnation) != len(inc) || len(l.Entries) > maxLinkBytes {
		return fail("malformed fields")
	}
	copy(admitter[:], l.Key)
	copy(inc[:], l.Incarnation)
	origin := oplog.OriginOf(admitter, inc)
	head, rest, err := oplog.ParseHead(l.Head)
	if err != nil || len(rest) != 0 || head.Origin != origin || !head.Verify(admitter) {
		return fail("its head does not verify")
	}
	var last oplog.Entry
	found := false
	for b := l.Entries; len(b) > 0; {
		e, rest, err := oplog.ParseEntry(b)
		if err != nil {
			return fail("its entries do not parse")
		}
		if e.Origin != origin || !last.Hash.IsZero() && (e.Seq != last.Seq+1 || e.Prev != last.Hash) {
			return fail("its entries do not chain")
		}
		if e.Present() && !found {
			if err := openEntry(&e); err != nil {
				return fail("%w", err)
			}
			switch e.Kind {
			case KindGenesis:
				var m MeshID
				if m, label, key, err = genesisOf(&e); err == nil && m != mesh {
					err = errors.New("it is the genesis of another mesh")
				}
				found = true
			case KindAdmit:
				if key, label, err = admitOf(&e); err == nil && key == admitter {
					err = errors.New("a device admits itself")
				}
				found = true
			}
			if err != nil {
				return fail("%w", err)
			}
			at = e.Time
		}
		last, b = e, rest
	}
	if !found || last.Seq != head.Seq || last.Hash != head.Hash {
		return fail("it does not reach its head")
	}
	return admitter, key, label, at, nil
}

// openEntry reads the opening of a payload, which ParseEntry leaves alone.
func openEntry(e *oplog.Entry) error {
	most := maxValues
	if _, err := skipValue(e.Payload, 0, &most); err != nil {
		return fmt.Errorf("payload does not parse: %w", err)
	}
	r := bytes.NewReader(e.Payload)
	dec := msgpack.NewDecoder(r)
	n, err := dec.DecodeArrayLen()
	if err == nil && n != 3 {
		err = fmt.Errorf("payload of %d parts, want 3", n)
	}
	if err == nil {
		e.Version, err = dec.DecodeUint64()
	}
	if err == nil {
		e.OpID, err = dec.DecodeString()
	}
	if err != nil {
		return fmt.Errorf("payload does not parse: %w", err)
	}
	e.Body = e.Payload[len(e.Payload)-r.Len():]
	return nil
}

// rangeReader is the part of the log that a link is cut from.
type rangeReader interface {
	ReadRange(origin oplog.OriginID, after uint64, maxBytes int) (oplog.Range, error)
}

// cutLink takes the entry at seq of an origin, and what follows up to the
// next stored head, from the log.
func cutLink(log rangeReader, o oplog.Origin, seq uint64) (link, error) {
	after := seq - 1
	if seq == 2 {
		after = 0 // the genesis: from the birth on
	}
	r, err := log.ReadRange(o.ID, after, 1) // up to the first head there is
	if err != nil {
		return link{}, err
	}
	l := link{Key: bytes.Clone(o.Key[:]), Incarnation: bytes.Clone(o.Incarnation[:]), Head: r.Head.Append(nil)}
	for b := r.Entries; len(b) > 0; {
		e, rest, err := oplog.ParseEntry(b)
		if err != nil {
			return link{}, err
		}
		if e.Seq != seq {
			e.Salt, e.Payload = nil, nil
		}
		l.Entries = e.Append(l.Entries)
		b = rest
	}
	if len(l.Entries) > maxLinkBytes {
		return link{}, errorf(CodeBusy, "", "try again", "the admission was written amid %d other entries", r.Count)
	}
	return l, nil
}
