package replica

import (
	"crypto/ed25519"
	"unicode/utf8"

	"tallystick/hlc"
	"tallystick/oplog"
)

// Kinds by which a device ceases to be a member (T2). Both act on receipt.
const (
	KindRevoke = "tally.revoke" // a member says up to where another device's log counts
	KindLeave  = "tally.leave"  // a device's last entry
)

const (
	maxCuts        = 256
	maxCutsBody    = 64 << 10 // bytes; a cut is about 140
	maxRevokeWords = 1024     // bytes of a reason
)

// cutBody is a head that the device has signed: where one line of its log is
// cut. So a cut cannot be made up, and whoever has the revoke can give the
// entries up to it to others, wherever the ranges ended that he got.
type cutBody struct {
	Incarnation []byte
	Seq         uint64
	Hash        []byte
	Floor       uint64
	Signature   []byte
}

// revokeBody revokes a device. Of an incarnation that Cuts does not list
// nothing counts.
type revokeBody struct {
	Key    []byte
	Cuts   []cutBody
	Reason string
}

// leaveBody says that the device which writes it is a member no more. Key and
// Incarnation give the entry's origin, as in a label; of that incarnation the
// entry itself is the cut. Cuts are those of its former ones.
type leaveBody struct {
	Key         []byte
	Incarnation []byte
	Cuts        []cutBody
}

// cutsOf reads cuts of a device and checks its signatures.
func cutsOf(key oplog.DeviceKey, list []cutBody) ([]oplog.Cut, bool) {
	if len(list) > maxCuts {
		return nil, false
	}
	var cuts []oplog.Cut
	for i := range list {
		b := &list[i]
		var inc oplog.Incarnation
		h := oplog.Head{Seq: b.Seq, Floor: hlc.Timestamp(b.Floor)}
		if len(b.Incarnation) != len(inc) || len(b.Hash) != len(h.Hash) || len(b.Signature) != ed25519.SignatureSize || b.Seq == 0 {
			return nil, false
		}
		copy(inc[:], b.Incarnation)
		copy(h.Hash[:], b.Hash)
		copy(h.Sig[:], b.Signature)
		h.Origin = oplog.OriginOf(key, inc)
		if !h.Verify(key) {
			return nil, false
		}
		cuts = append(cuts, oplog.Cut{Origin: h.Origin, Tip: h.Tip(), Head: h})
	}
	return cuts, true
}

func decodeCuts(e *oplog.Entry, dst any) error {
	if e.Version != memberVersion {
		return oplog.Quarantine("%s of payload version %d, this program knows %d", e.Kind, e.Version, memberVersion)
	}
	if len(e.Body) > maxCutsBody {
		return oplog.Quarantine("%s of %d bytes, limit %d", e.Kind, len(e.Body), maxCutsBody)
	}
	if err := unmarshalArrays(e.Body, dst); err != nil {
		return oplog.Quarantine("%s does not parse", e.Kind)
	}
	return nil
}

func revokeOf(e *oplog.Entry) (key oplog.DeviceKey, cuts []oplog.Cut, reason string, err error) {
	var b revokeBody
	if err := decodeCuts(e, &b); err != nil {
		return key, nil, "", err
	}
	if len(b.Key) != len(key) || len(b.Reason) > maxRevokeWords || !utf8.ValidString(b.Reason) {
		return key, nil, "", oplog.Quarantine("revoke with malformed fields")
	}
	copy(key[:], b.Key)
	cuts, ok := cutsOf(key, b.Cuts)
	if !ok {
		return key, nil, "", oplog.Quarantine("revoke with a cut that its device has not signed")
	}
	return key, cuts, b.Reason, nil
}

func leaveOf(e *oplog.Entry) (key oplog.DeviceKey, cuts []oplog.Cut, err error) {
	var b leaveBody
	if err := decodeCuts(e, &b); err != nil {
		return key, nil, err
	}
	var inc oplog.Incarnation
	if len(b.Key) != len(key) || len(b.Incarnation) != len(inc) {
		return key, nil, oplog.Quarantine("leave with malformed fields")
	}
	copy(key[:], b.Key)
	copy(inc[:], b.Incarnation)
	if oplog.OriginOf(key, inc) != e.Origin {
		return key, nil, oplog.Quarantine("leave of another origin")
	}
	cuts, ok := cutsOf(key, b.Cuts)
	if !ok {
		return key, nil, oplog.Quarantine("leave with a cut that its device has not signed")
	}
	return key, append(cuts, oplog.Cut{Origin: e.Origin, Tip: oplog.Tip{Seq: e.Seq, Hash: e.Hash}}), nil
}

// cutsAt are the cuts of a device at the last heads that are held of it; not of
// the origin except.
func cutsAt(log *oplog.Log, key oplog.DeviceKey, except oplog.OriginID) (list []cutBody) {
	incs := map[oplog.OriginID]oplog.Incarnation{}
	for _, o := range log.Origins() {
		if o.Key == key && o.ID != except {
			incs[o.ID] = o.Incarnation
		}
	}
	for _, h := range log.Heads() {
		if inc, ok := incs[h.Origin]; ok {
			list = append(list, cutBody{Incarnation: inc[:], Seq: h.Seq, Hash: h.Hash[:], Floor: uint64(h.Floor), Signature: h.Sig[:]})
		}
	}
	return list
}

func revokeOp(key oplog.DeviceKey, cuts []cutBody, reason string) (oplog.Op, error) {
	if cuts == nil {
		cuts = []cutBody{} // an array, not nil
	}
	body, err := marshalArrays(&revokeBody{Key: key[:], Cuts: cuts, Reason: reason})
	return oplog.Op{Kind: KindRevoke, Version: memberVersion, Body: body}, err
}

func leaveOp(self oplog.Origin, cuts []cutBody) (oplog.Op, error) {
	if cuts == nil {
		cuts = []cutBody{}
	}
	body, err := marshalArrays(&leaveBody{Key: self.Key[:], Incarnation: self.Incarnation[:], Cuts: cuts})
	return oplog.Op{Kind: KindLeave, Version: memberVersion, OpID: "leave:" + self.ID.String(), Body: body}, err
}
