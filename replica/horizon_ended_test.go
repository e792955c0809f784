package replica

import "testing"

// TestK4_WaitsForTheCutOfARevokedDevice: of a device that is no member any more
// all entries up to its cuts are waited for, and nothing else.
func TestK4_WaitsForTheCutOfARevokedDevice(t *testing.T) {
	a := mustOpen(t, testConfig(t, "a"))
	bcfg := testConfig(t, "b")
	b := mustJoin(t, a, bcfg)
	c := mustJoin(t, a, testConfig(t, "c"))
	note(t, c, "mine")
	converged(t, a, b, c)
	mustClose(t, b)
	note(t, c, "not here yet") // at a alone
	eventually(t, "c's note at a", func() bool { return a.Log().Frontier().Seq(c.Self().ID) == c.Self().Tips[0].Seq })
	origin := c.Self().ID
	mustRevoke(t, a, c, "")
	ended := func(r *Replica) (out OriginHorizon) {
		for _, m := range r.Horizon().Members {
			if m.Key == c.key && m.Standing == Revoked && len(m.Origins) == 1 {
				out = m.Origins[0]
			}
		}
		return out
	}
	if o := ended(a); o.ID != origin || !o.Sealed || !o.Complete {
		t.Errorf("at a: %+v", o)
	}
	cut := a.Log().Endings()[c.key].Cuts
	if len(cut) != 1 || cut[0].Origin != origin {
		t.Fatalf("cuts %+v", cut)
	}
	if holdsAll(a.Log(), origin, nil) != true || a.Log().Frontier().Seq(origin) < cut[0].Tip.Seq {
		t.Error("a does not hold what it cut at")
	}
	bcfg.Peers = a.Addresses()
	b = mustOpen(t, bcfg)
	eventually(t, "all up to the cut at b", func() bool { o := ended(b); return o.Sealed && o.Complete && o.Seq == cut[0].Tip.Seq })
	converged(t, a, b)
}
