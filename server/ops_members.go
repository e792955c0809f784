package server

import (
	"context"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"tallystick/oplog"
	"tallystick/query/claim"
	"tallystick/replica"
)

// MemberRow is a device of the mesh, or one that was.
type MemberRow struct {
	Label    string `json:"label"`
	Device   string `json:"device"`   // its key, in hex
	Standing string `json:"standing"` // member, revoked, left or suspended
	Self     bool   `json:"self,omitempty"`
	Admitted string `json:"admitted_at,omitempty"`
	By       string `json:"admitted_by,omitempty"` // label of the replica that let it in
	Flagged  bool   `json:"flagged,omitempty"`     // another device had its label before (I9)
	EndedAt  string `json:"ended_at,omitempty"`
	EndedBy  string `json:"ended_by,omitempty"` // label of the replica that revoked it
	Reason   string `json:"reason,omitempty"`
	Beyond   int    `json:"beyond_cut,omitempty"` // entries that are kept aside, of the first 1000 of all devices
}

// MembersAnswer lists the devices of the mesh: members first, by admission.
type MembersAnswer struct {
	Members []MemberRow `json:"members"`
	Count   int         `json:"count"` // of those that are members now
	// Ended says that this device itself is no member any more.
	Ended string `json:"ended,omitempty"`
}

func (s *Service) members(_ context.Context, o Owner, _ struct{}) (MembersAnswer, error) {
	ans := MembersAnswer{Members: []MemberRow{}}
	own, err := o.OwnEnding()
	if err != nil {
		return ans, err
	}
	if own != nil {
		ans.Ended = own.String()
	}
	for _, m := range o.Members() {
		row := MemberRow{Label: m.Label, Device: m.Key.String(), Standing: replica.Current.String(), Self: m.Key == o.Log().Self().Key, Flagged: m.Flagged}
		if !m.Admission.IsZero() {
			row.Admitted, row.By = timeText(m.Admission.Time().Time()), originName(o, m.Admission.Origin())
		}
		ans.Members = append(ans.Members, row)
	}
	ans.Count = len(ans.Members)
	departed, err := o.Departed()
	if err != nil {
		return ans, err
	}
	beyond, err := beyondBy(o)
	if err != nil {
		return ans, err
	}
	for _, d := range departed {
		row := MemberRow{Label: d.Label, Device: d.Key.String(), Standing: d.Ending.Standing.String(), Self: d.Key == o.Log().Self().Key,
			EndedAt: timeText(d.Ending.Act.Time().Time()), Reason: d.Reason, Beyond: beyond[d.Key]}
		if d.Ending.Standing == replica.Revoked {
			row.EndedBy = d.By
		}
		ans.Members = append(ans.Members, row)
	}
	return ans, nil
}

// beyondBy counts the entries that are kept aside beyond a cut.
func beyondBy(o Owner) (map[oplog.DeviceKey]int, error) {
	list, err := o.Log().Aside(maxAsideList)
	if err != nil {
		return nil, err
	}
	device := map[oplog.OriginID]oplog.DeviceKey{}
	for _, g := range o.Log().Origins() {
		device[g.ID] = g.Key
	}
	n := map[oplog.DeviceKey]int{}
	for _, a := range list {
		if a.Beyond {
			n[device[a.Ref.Origin()]]++
		}
	}
	return n, nil
}

// DepartRequest names a device by its label or the beginning of its key, at
// least 8 digits. With DryRun it only says what would come of it.
type DepartRequest struct {
	Session Session `json:"session"`
	Name    string  `json:"name,omitempty"`
	Reason  string  `json:"reason,omitempty"`
	OpID    string  `json:"op_id,omitempty"`
	WaitMS  int64   `json:"wait_ms,omitempty"` // of a leave: how long to wait for a member to hear
	DryRun  bool    `json:"dry_run,omitempty"`
}

// DepartAnswer is what a revoke or a leave does.
type DepartAnswer struct {
	Device MemberRow   `json:"device"`
	Cuts   []CutRow    `json:"cuts"`   // up to where its log counts
	Claims []EndsClaim `json:"claims"` // live claims of it that end
	Done   bool        `json:"done"`
	Heard  []string    `json:"heard,omitempty"` // of a leave: members that hold it
}

// CutRow is the end of what counts of one line of a device's log.
type CutRow struct {
	Origin string `json:"origin"`
	Seq    uint64 `json:"seq"`
}

// EndsClaim is a live claim that ends.
type EndsClaim struct {
	Task   string `json:"task"`
	Stream string `json:"stream"`
	Holder string `json:"holder"`
}

const minDeviceDigits = 8

// findDevice finds the one device that a name stands for.
func findDevice(rows []MemberRow, name string) (MemberRow, error) {
	var found []MemberRow
	for _, r := range rows {
		if r.Label == name || len(name) >= minDeviceDigits && strings.HasPrefix(r.Device, name) {
			found = append(found, r)
		}
	}
	switch {
	case len(found) == 0:
		return MemberRow{}, fail(CodeNotFound, "name", "see tally members", "no device is named %s", quote(name))
	case len(found) > 1:
		if i := slices.IndexFunc(found, func(r MemberRow) bool { return r.Standing == replica.Current.String() }); i >= 0 &&
			!slices.ContainsFunc(found[i+1:], func(r MemberRow) bool { return r.Standing == replica.Current.String() }) {
			return found[i], nil
		}
		return MemberRow{}, fail(CodeConflict, "name", "name it by its device key, see tally members --json", "%d devices are named %s", len(found), quote(name))
	}
	return found[0], nil
}

// departure says what ends with a device.
func (s *Service) departure(o Owner, row MemberRow) (ans DepartAnswer, key oplog.DeviceKey, err error) {
	ans = DepartAnswer{Device: row, Cuts: []CutRow{}, Claims: []EndsClaim{}}
	b, err := hex.DecodeString(row.Device)
	if err != nil || len(b) != len(key) {
		return ans, key, fail(CodeInvalidArgument, "name", "", "%s is no device key", quote(row.Device))
	}
	copy(key[:], b)
	mine := map[oplog.OriginID]bool{}
	for _, g := range o.Log().Origins() {
		mine[g.ID] = g.Key == key
	}
	for _, h := range o.Log().Heads() {
		if mine[h.Origin] {
			ans.Cuts = append(ans.Cuts, CutRow{h.Origin.String(), h.Seq})
		}
	}
	h := s.d.Mesh.Horizon()
	err = o.Log().View(func(snap oplog.Snapshot) error {
		page, err := claim.List(snap, claim.Filter{Limit: claim.MaxLimit}, h, func(id oplog.OriginID) string {
			if mine[id] {
				return row.Label
			}
			return ""
		})
		for _, c := range page.Claims {
			if c.Origin == row.Label {
				ans.Claims = append(ans.Claims, EndsClaim{c.Task, c.Stream, c.Holder})
			}
		}
		return err
	})
	return ans, key, err
}

func (s *Service) revoke(ctx context.Context, o Owner, q DepartRequest) (ans DepartAnswer, err error) {
	id, bad := s.bindWriter(q.Session)
	if bad != nil {
		return ans, bad
	}
	all, err := s.members(ctx, o, struct{}{})
	if err != nil {
		return ans, err
	}
	row, err := findDevice(all.Members, q.Name)
	if err != nil {
		return ans, err
	}
	switch {
	case row.Self:
		return ans, fail(CodeInvalidArgument, "name", "use tally leave, or revoke it from another machine", "%s is this machine", quote(q.Name))
	case row.Standing != replica.Current.String():
		return ans, fail(CodeConflict, "name", "see tally members", "%s is no member any more: %s", quote(row.Label), row.Standing)
	}
	ans, key, err := s.departure(o, row)
	if err != nil || q.DryRun {
		return ans, err
	}
	if q.OpID == "" {
		q.OpID = NewOpID()
	}
	if err := o.Revoke(ctx, key, q.Reason, opKey("revoke", q.OpID, "")); err != nil {
		return ans, err
	}
	ans.Done = true
	s.log.Info("revoked a device", "identity", id.Name, "label", row.Label)
	return ans, nil
}

func (s *Service) readmit(ctx context.Context, o Owner, q DepartRequest) (ans DepartAnswer, err error) {
	all, err := s.members(ctx, o, struct{}{})
	if err != nil {
		return ans, err
	}
	row, err := findDevice(all.Members, q.Name)
	if err != nil {
		return ans, err
	}
	ans, key, err := s.departure(o, row)
	if err != nil {
		return ans, err
	}
	if err := o.Readmit(ctx, key); err != nil {
		return ans, err
	}
	ans.Done = true
	s.log.Info("readmitted a device", "label", row.Label)
	return ans, nil
}

// maxLeaveWait bounds how long a leave waits for a member to hear of it.
const maxLeaveWait = time.Minute

func (s *Service) leave(ctx context.Context, o Owner, q DepartRequest) (ans DepartAnswer, err error) {
	all, err := s.members(ctx, o, struct{}{})
	if err != nil {
		return ans, err
	}
	i := slices.IndexFunc(all.Members, func(r MemberRow) bool { return r.Self })
	if i < 0 {
		return ans, fail(CodeConflict, "", "", "this device is no member")
	}
	ans, _, err = s.departure(o, all.Members[i])
	if err != nil || q.DryRun {
		return ans, err
	}
	ctx, cancel := context.WithTimeout(ctx, min(max(time.Duration(q.WaitMS)*time.Millisecond, time.Millisecond), maxLeaveWait))
	defer cancel()
	if ans.Heard, err = o.Leave(ctx); err != nil {
		return ans, err
	}
	ans.Done = true
	s.log.Info("left the mesh")
	return ans, nil
}
