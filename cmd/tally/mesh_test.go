package main

import (
	"strings"
	"testing"
	"time"

	"tallystick/hlc"
	"tallystick/oplog"
	"tallystick/query/claim"
	"tallystick/replica"
)

// TestK4_L7d_SealedLogSettles: a machine that was put back holds up the grade of
// every claim by its former log, and is named for it, until that log is sealed
// and all of it is here.
func TestK4_L7d_SealedLogSettles(t *testing.T) {
	now := time.Now()
	self, former, present := oplog.OriginID{1}, oplog.OriginID{2}, oplog.OriginID{3}
	stamp := hlc.New(now.Add(-time.Minute).UnixMilli(), 0)
	early, late := hlc.New(now.Add(-time.Hour).UnixMilli(), 0), hlc.New(now.UnixMilli(), 0)
	for name, c := range map[string]struct {
		sealed, complete bool
		want             string
	}{
		"not sealed":             {false, true, claim.Provisional},
		"sealed, its tail away":  {true, false, claim.Provisional},
		"sealed and all is here": {true, true, claim.Settled},
	} {
		h := claimHorizon(replica.Horizon{Wall: now.UnixMilli(), Members: []replica.MemberHorizon{
			{Label: "desk", Self: true, Origins: []replica.OriginHorizon{{ID: self, Floor: late, Complete: true}}},
			{Label: "nas", Origins: []replica.OriginHorizon{
				{ID: former, Floor: early, Complete: c.complete, Sealed: c.sealed}, {ID: present, Floor: late, Complete: true}}},
		}}, self)
		grade, unheard := h.Grade(stamp)
		if grade != c.want || (len(unheard) == 0) != (grade == claim.Settled) {
			t.Errorf("%s: %s, waits for %v", name, grade, unheard)
		}
		if !c.sealed && (len(unheard) != 1 || unheard[0].Replica != "nas" || !strings.Contains(unheard[0].Reason, "not sealed")) {
			t.Errorf("%s: waits for %v", name, unheard)
		}
	}
}
