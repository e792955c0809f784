package main

import (
	"net"
	"testing"
)

// TestTakenPort: a port that nobody asked for and another program has is
// replaced by a free one, and said.
func TestTakenPort(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	addr := l.Addr().String()
	s := settings{Listen: addr, AnyPort: true}
	if taken := s.choosePort(); taken != addr || s.Listen != "127.0.0.1:0" {
		t.Errorf("taken %q, listen %q", taken, s.Listen)
	}
	s = settings{Listen: addr}
	if taken := s.choosePort(); taken != "" || s.Listen != addr {
		t.Errorf("a port that was asked for: taken %q, listen %q", taken, s.Listen)
	}
}

// TestLossIsTold: the notice to a loser names the task, both claims and the
// grade (K1, K4).
func TestLossIsTold(t *testing.T) {
	e := event{CorrelationID: "t1", Grade: "provisional", Metadata: []byte(`{"claim":"evt_a","winner":"evt_b","automatic":true}`)}
	if got, want := e.loss(), "the claim evt_a on t1 is lost to evt_b (provisional); stop working on it"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	e.Metadata = []byte(`{"claim":"evt_a","winner":"evt_b","rule":"winner_void","automatic":true}`)
	if got, want := e.loss(), "the claim evt_a on t1 was given up to evt_b, which counts no longer; the task is free, claim it again"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	for _, m := range []string{"", `{}`, `{"claim":"evt_a"}`} {
		if got := (&event{Metadata: []byte(m)}).loss(); got != "" {
			t.Errorf("%s: %q", m, got)
		}
	}
}
