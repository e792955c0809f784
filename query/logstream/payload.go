package logstream

import (
	"errors"

	"tallystick/oplog"
	"tallystick/query/imported"
	"tallystick/query/internal/pack"
)

// PayloadVersion is the version of both payloads that this program writes and
// reads. Entries of a later one are set aside until a later program folds
// them (L6).
const PayloadVersion = 0

const (
	eventFields = 14
	ackFields   = 5
)

func isNotFound(err error) bool { return errors.Is(err, oplog.ErrNotFound) }

// Append encodes the payload of an event: an array of 14.
func (e *Event) Append(dst []byte) []byte {
	return e.append(pack.Array(dst, eventFields))
}

func (e *Event) append(dst []byte) []byte {
	for _, s := range []string{e.Type, e.Status, e.Stream, e.Room, e.Topic, e.To, e.Correlation, e.Branch, e.BaseCommit} {
		dst = pack.Str(dst, s)
	}
	dst = pack.Uint(dst, uint64(max(e.ExpiresAt, 0)))
	dst = e.Import.Append(dst)
	dst = pack.Array(dst, len(e.ArtifactIDs))
	for _, id := range e.ArtifactIDs {
		dst = pack.Str(dst, id)
	}
	dst = pack.Bin(dst, e.Metadata)
	return pack.Str(dst, e.Body)
}

// Append encodes the payload of an ack: an array of 19, an event's 14 first.
func (a *Ack) Append(dst []byte) []byte {
	dst = a.append(pack.Array(dst, eventFields+ackFields))
	dst = pack.Str(dst, a.Task)
	dst = pack.Bin(dst, a.Of[:])
	dst = pack.Uint(dst, uint64(max(a.LeaseMS, 0)))
	if a.Claim.IsZero() {
		dst = pack.Nil(dst)
	} else {
		dst = pack.Bin(dst, a.Claim[:])
	}
	return pack.Bool(dst, a.Automatic)
}

// Raw is a payload with its texts still in the entry's bytes: what folds read.
type Raw struct {
	Type, Status, Stream, Room, Topic, To []byte
	Correlation, Branch, BaseCommit       []byte
	Metadata, Body                        []byte
	Artifacts                             [][]byte
	ExpiresAt                             int64
	Import                                imported.Key

	Ack       bool
	Task      []byte
	Of, Claim oplog.Ref
	LeaseMS   int64
	Automatic bool
}

// Decode reads the payload of an entry of kind "event" or "ack": its form and
// the lengths of its fields. An error is a *oplog.QuarantineError.
func Decode(e *oplog.Entry) (Raw, error) {
	if e.Version != PayloadVersion {
		return Raw{}, oplog.Quarantine("%s of payload version %d; this program reads %d", e.Kind, e.Version, PayloadVersion)
	}
	raw, err := decode(e.Body, e.Kind == KindAck)
	if err != nil {
		return Raw{}, oplog.Quarantine("%s: %v", e.Kind, err)
	}
	return raw, nil
}

func decode(body []byte, ack bool) (raw Raw, err error) {
	r := pack.NewReader(body)
	n := eventFields
	if ack {
		n += ackFields
	}
	r.Exactly(n)
	raw.Ack = ack
	raw.Type = r.Str(MaxType)
	raw.Status = r.Str(maxStatus)
	raw.Stream = r.Str(maxRoutingBytes)
	raw.Room = r.Str(maxRoutingBytes)
	raw.Topic = r.Str(maxRoutingBytes)
	raw.To = r.Str(maxRoutingBytes)
	raw.Correlation = r.Str(maxRoutingBytes)
	raw.Branch = r.Str(maxRoutingBytes)
	raw.BaseCommit = r.Str(maxRoutingBytes)
	raw.ExpiresAt = int64(r.Uint(maxMillis))
	raw.Import = imported.Read(&r)
	if n := r.Array(MaxArtifacts); n > 0 {
		raw.Artifacts = make([][]byte, n)
		for i := range raw.Artifacts {
			raw.Artifacts[i] = r.Str(maxArtifactID)
		}
	}
	raw.Metadata = r.Bin(MaxMetadata)
	raw.Body = r.Str(MaxBody)
	if ack {
		raw.Task = r.Str(maxTaskKey)
		raw.Of = readRef(&r)
		raw.LeaseMS = int64(r.Uint(maxMillis))
		raw.Claim = readRef(&r)
		raw.Automatic = r.Bool()
		if r.Err() == nil && (len(raw.Task) == 0 || raw.Of.IsZero()) {
			r.Fail("ack of nothing")
		}
	}
	return raw, r.End()
}

func readRef(r *pack.Reader) (ref oplog.Ref) {
	b := r.Bin(oplog.RefSize)
	if b == nil {
		return ref
	}
	ref, err := oplog.RefOf(b)
	if err != nil {
		r.Fail("%v", err)
	} else if ref.IsZero() {
		r.Fail("reference to nothing")
	}
	return ref
}

// Event copies the texts out.
func (raw *Raw) Event() Event {
	ev := Event{
		Type: string(raw.Type), Stream: string(raw.Stream), Room: string(raw.Room), Topic: string(raw.Topic),
		To: string(raw.To), Correlation: string(raw.Correlation), Branch: string(raw.Branch), BaseCommit: string(raw.BaseCommit),
		Status: string(raw.Status), Body: string(raw.Body), ExpiresAt: raw.ExpiresAt, Import: raw.Import,
	}
	if raw.Metadata != nil {
		ev.Metadata = append([]byte{}, raw.Metadata...)
	}
	for _, a := range raw.Artifacts {
		ev.ArtifactIDs = append(ev.ArtifactIDs, string(a))
	}
	return ev
}

// AckPayload copies an ack out.
func (raw *Raw) AckPayload() Ack {
	return Ack{
		Event: raw.Event(), Task: string(raw.Task), Of: raw.Of, LeaseMS: raw.LeaseMS, Claim: raw.Claim, Automatic: raw.Automatic,
	}
}

// dedup is the key under which copies of one thing count once: an import's
// key, or for an automatic ack the claim that is lost (K1), or was given up to one
// that counts no longer: by its origin, seq and hash, for an amend between two copies changes its stamp.
func (raw *Raw) dedup() (key [16]byte, ok bool) {
	switch {
	case !raw.Import.IsZero():
		return raw.Import.Hash(), true
	case raw.Automatic && !raw.Claim.IsZero():
		return imported.Key{Source: "tally.superseded", ID: string(raw.Claim[8:])}.Hash(), true
	case raw.Automatic:
		return imported.Key{Source: "tally.reopened", ID: string(raw.Of[8:])}.Hash(), true
	}
	return key, false
}
