package replica

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"tallystick/oplog"
)

// edition is a version of a program that folds notes: the newer one knows one
// kind more, a newer payload, and allows longer bodies.
type edition struct{ newer bool }

func (edition) Name() string { return "notes" }
func (v edition) Version() uint32 {
	if v.newer {
		return 2
	}
	return 1
}
func (v edition) Kinds() []string {
	if v.newer {
		return []string{"note", "sketch"}
	}
	return []string{"note"}
}

func (v edition) Apply(tx oplog.Tx, e *oplog.Entry) error {
	switch {
	case e.Version > 1 && !v.newer:
		return oplog.Quarantine("%s of payload version %d; this program reads 1", e.Kind, e.Version)
	case len(e.Body) > 0 && e.Body[0] == 0xc1 && !v.newer:
		return oplog.Quarantine("%s: malformed", e.Kind)
	case len(e.Body) > 100 && !v.newer:
		return oplog.Quarantine("%s: text of %d bytes is over the limit of 100", e.Kind, len(e.Body))
	}
	ref := e.Ref()
	return tx.Insert(ref[:], e.Body)
}

// TestL6_FiveCausesOverTheMesh: among 10,000 entries of a member one is of a
// kind, one of a payload version, one of a form and one of a length that the
// others' program does not know, and one names another member's host. Over TLS
// they come to an older replica, which lists each with its reason and shows all
// others, and by way of that one alone to a third. After an upgrade the older
// one folds what it now understands, and never the forged one.
func TestL6_FiveCausesOverTheMesh(t *testing.T) {
	const total, perAppend = 10_000, 500
	with := func(label string, newer bool) Config {
		cfg := testConfig(t, label)
		cfg.Projections = []oplog.Projection{edition{newer}}
		return cfg
	}
	old := mustOpen(t, with("old", false))
	cfg := with("new", true)
	writer := mustJoin(t, old, cfg)
	sameFrontier := func(a, b *Replica) bool { return a.Log().Frontier().Digest() == b.Log().Frontier().Digest() }
	eventually(t, "the join", func() bool { return sameFrontier(old, writer) })
	keys := writer.keys
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}

	bad := map[int]oplog.Op{ // by their place among the entries
		1_234: {Kind: "sketch", Author: "new:tester:repo", Version: 1, Body: []byte{0xc0}},
		3_456: {Kind: "note", Author: "new:tester:repo", Version: 2, Body: []byte{0xc0}},
		5_000: {Kind: "note", Author: "new:tester:repo", Version: 1, Body: []byte{0xc1}},
		7_777: {Kind: "note", Author: "new:tester:repo", Version: 1, Body: append([]byte{0xd9, 200}, strings.Repeat("x", 200)...)},
		9_998: {Kind: "note", Author: "old:tester:repo", Version: 1, Body: []byte("\xa6forged")},
	}
	reasons := map[int]string{1_234: `unknown kind "sketch"`, 3_456: "payload version 2", 5_000: "malformed", 7_777: "over the limit of 100", 9_998: "I9"}
	log, err := oplog.Open(testContext(t), oplog.Config{Dir: writer.cfg.storeDir(), EncryptionKey: keys.store, Signer: keys.device, MinFree: -1,
		Projections: []oplog.Projection{NewMembership(writer.Mesh()), edition{true}, erasures{}}}) // and no gate, which would keep I9
	if err != nil {
		t.Fatal(err)
	}
	var first uint64
	at := map[uint64]int{} // seq of the bad ones
	for i := 0; i < total; i += perAppend {
		ops := make([]oplog.Op, perAppend)
		for j := range ops {
			ops[j] = oplog.Op{Kind: "note", Author: "new:tester:repo", Version: 1, Body: fmt.Appendf([]byte{0xa5}, "%05d", i+j)}
			if op, ok := bad[i+j]; ok {
				ops[j] = op
			}
		}
		res, err := log.Append(testContext(t), ops...)
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			first = res[0].Ref.Seq()
		}
		for n := range bad {
			if n >= i && n < i+perAppend {
				at[res[n-i].Ref.Seq()] = n
			}
		}
	}
	origin := log.Self().ID
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}

	cfg.Peers = old.Addresses()
	writer = mustOpen(t, cfg)
	eventually(t, "the older one holds all", func() bool {
		// Whenever one looks, what is held of the writer is visible but for the bad.
		err := old.View(func(s oplog.Snapshot) error {
			list, err := s.(interface {
				Positions() ([]oplog.Position, error)
			}).Positions()
			for _, p := range list {
				for _, seq := range p.Except {
					if _, ok := at[seq]; p.Origin == origin && !ok {
						t.Errorf("seq %d is not shown", seq)
					}
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return sameFrontier(old, writer)
	})
	rows := func(r *Replica) (n uint64) {
		for _, v := range r.Log().Views() {
			if v.Name == "notes" {
				n = v.Rows
			}
		}
		return n
	}
	aside := func(r *Replica) (list []int) {
		asides, err := r.Log().Aside(20)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range asides {
			n, ok := at[a.Ref.Seq()]
			if !ok || a.Ref.Origin() != origin || a.Held || !strings.Contains(a.Reason, reasons[n]) || r.LabelOf(a.Ref.Origin()) != "new" {
				t.Errorf("%s sets aside %+v; want %d with %q", r.Label(), a, n, reasons[n])
			}
			list = append(list, n)
		}
		slices.Sort(list)
		return list
	}
	all := []int{1_234, 3_456, 5_000, 7_777, 9_998}
	if got := aside(old); rows(old) != total-5 || !slices.Equal(got, all) {
		t.Fatalf("the older one shows %d and sets aside %v", rows(old), got)
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}

	third := mustJoin(t, old, with("third", true)) // knows the older one alone
	eventually(t, "the third holds all", func() bool {
		// What came before the admission of its device is released in several steps.
		return third.Log().Frontier().Seq(origin) == first+total-1 && sameFrontier(old, third) && third.Log().Held() == 0
	})
	if got := aside(third); rows(third) != total-1 || !slices.Equal(got, all[4:]) {
		t.Errorf("the third shows %d and sets aside %v", rows(third), got)
	}
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	upgraded := old.cfg
	upgraded.Projections = []oplog.Projection{edition{true}}
	old = mustOpen(t, upgraded)
	if got := aside(old); rows(old) != total-1 || !slices.Equal(got, all[4:]) {
		t.Errorf("upgraded it shows %d and sets aside %v", rows(old), got)
	}
}

// TestL6_StatusCountsAll: status lists a hundred of what is quarantined, and
// counts all of it.
func TestL6_StatusCountsAll(t *testing.T) {
	with := func(label string, newer bool) Config {
		cfg := testConfig(t, label)
		cfg.Projections = []oplog.Projection{edition{newer}}
		return cfg
	}
	old := mustOpen(t, with("old", false))
	writer := mustJoin(t, old, with("new", true))
	ops := make([]oplog.Op, maxAsides+50)
	for i := range ops {
		ops[i] = oplog.Op{Kind: "sketch", Author: "new:tester:repo", Version: 1, Body: []byte{0xc0}}
	}
	if _, err := writer.Log().Append(testContext(t), ops...); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the older one holds all", func() bool {
		return old.Log().Frontier().Digest() == writer.Log().Frontier().Digest() && old.Log().Held() == 0
	})
	st, err := old.Status()
	if err != nil || len(st.Quarantined) != maxAsides || st.Unfoldable != len(ops) || len(st.Held) != 0 {
		t.Errorf("%d quarantined listed, %d counted, %d held, %v; want %d and %d", len(st.Quarantined), st.Unfoldable, len(st.Held), err, maxAsides, len(ops))
	}
}
