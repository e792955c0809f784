package query_test

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"tallystick/internal/hostile"
	"tallystick/oplog"
	"tallystick/query"
	"tallystick/query/artifact"
	"tallystick/query/checkpoint"
	"tallystick/query/claim"
	"tallystick/query/delegation"
	"tallystick/query/identity"
	"tallystick/query/imported"
	"tallystick/query/internal/foldtest"
	"tallystick/query/logstream"
	"tallystick/query/mailbox"
	"tallystick/query/memory"
	"tallystick/query/merges"
	"tallystick/query/minted"
	"tallystick/query/rawmemory"
	"tallystick/query/refusal"
	"tallystick/query/summary"
)

const hostileAuthor = "mac:claude:tally"

func fromHex(s string) []byte {
	b, err := hex.DecodeString(s)
	if err != nil {
		panic(err)
	}
	return b
}

// goodBodies is a payload of every kind that a domain writes, by what it is.
func goodBodies(t testing.TB) map[string]struct {
	kind string
	body []byte
} {
	t.Helper()
	key := imported.Key{Source: "s", ID: "1", Part: "p"}
	ev := logstream.Event{Type: "status", Stream: "s", Room: "r", Topic: "t", To: "*", Correlation: "c", Branch: "main", BaseCommit: "c0ffee",
		Status: "open", Body: "text", Metadata: json.RawMessage(`{"a":[1]}`), ArtifactIDs: []string{"art_1"}, Import: key}
	claimed := ev
	claimed.Type = logstream.TypeAck
	ack := logstream.Ack{Event: claimed, Task: "t", Of: oplog.Ref{1}, Claim: oplog.Ref{2}, LeaseMS: 60_000}
	art := artifact.Artifact{Kind: "patch", Hash: oplog.Hash{1}, Size: 1, Metadata: json.RawMessage(`{"a":1}`), Warnings: []string{artifact.WarnCR}}
	sum := summary.Summary{Title: "t", Text: "x", Category: "other", Session: "s", Identities: []string{"a"}, Import: key}
	bodies := map[string]struct {
		kind string
		body []byte
	}{
		"event":    {logstream.KindEvent, ev.Append(nil)},
		"ack":      {logstream.KindAck, ack.Append(nil)},
		"artifact": {artifact.Kind, art.Append(nil)},
		"summary":  {summary.Kind, sum.Append(nil)},
	}
	add := func(name string, op oplog.Op, err error) {
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		bodies[name] = struct {
			kind string
			body []byte
		}{op.Kind, op.Body}
	}
	op, err := minted.NewOp(minted.Mint{Host: "mac", Agent: "claude", Project: "tally", Repo: minted.Repo{Remote: "example.org/me/tally"}, Chosen: true, Former: []string{"mac-claude"}})
	add("mint", op, err)
	op, err = delegation.NewOp(hostileAuthor, delegation.Request{Project: "tally", To: "*", Goal: "g", Branch: "main", BaseCommit: strings.Repeat("c0ffee", 4), Done: "d"})
	add("request", op, err)
	// These two are made in the log's writer; the bytes are golden.
	add("checkpoint", oplog.Op{Kind: checkpoint.Kind, Body: fromHex("95a161a77b226e223a317da46d61696ea6633066666565c0")}, nil)
	add("forget", oplog.Op{Kind: memory.KindMark, Body: fromHex("940291c4200200000000000000000000000000000000000000000000000000000000000002" +
		"91c4200100000000000000000000000000000000000000000000000000000000000001c0")}, nil)
	op, err = rawmemory.NewOp(hostileAuthor, rawmemory.Turn{Session: "s", Prompt: "p", Response: "r", Tools: []string{"grep"}, Identities: []string{"a"}, Timestamp: "2026-01-02T03:04:05Z", Import: key})
	add("turn", op, err)
	op, err = memory.NewAdd(hostileAuthor, memory.Fact{Namespace: "a", Text: "x", Confidence: memory.Verified, Category: "c"})
	add("fact", op, err)
	op, err = memory.NewLink(hostileAuthor, "a", "from", "to")
	add("link", op, err)
	op, err = memory.NewAlias(hostileAuthor, "a", "DB", []string{"database"})
	add("alias", op, err)
	mail, err := logstream.NewMailOp(hostileAuthor, logstream.Event{Type: mailbox.TypeMessage, Stream: "mail", Room: "mail", To: "nas-codex", Body: "b",
		Metadata: json.RawMessage(`{"subject":"s","priority":"normal"}`)})
	add("mail", mail, err)
	return bodies
}

// TestL6_HostilePayloads: whatever a member writes into an entry is folded or
// set aside, by every fold there is, and costs no memory beyond its size.
func TestL6_HostilePayloads(t *testing.T) {
	projections, _ := query.Default()
	for name, good := range goodBodies(t) {
		t.Run(name, func(t *testing.T) {
			fold := func(version uint64, body []byte) error {
				e := foldtest.Entry(1, 1, foldtest.At(0), good.kind, hostileAuthor, body)
				e.Version = version
				var refused error
				for _, p := range projections {
					for _, k := range p.Kinds() {
						if k != good.kind {
							continue
						}
						err := p.Apply(foldtest.NewTx(), &e)
						if q := new(oplog.QuarantineError); err != nil && !errors.As(err, &q) {
							t.Fatalf("%s: not set aside: %v", p.Name(), err)
						}
						refused = errors.Join(refused, err)
					}
				}
				return refused
			}
			if err := fold(0, good.body); err != nil {
				t.Fatalf("the good one: %v", err)
			}
			hostile.Check(t, hostile.Msgpack(good.body), nil, func(b []byte) error { return fold(0, b) })
			hostile.Check(t, []hostile.Case{{Kind: hostile.Version, Name: "the next", In: good.body}}, nil, func(b []byte) error { return fold(1, b) })
		})
	}
}

// TestA4_HostileArguments: the arguments that the domains read themselves.
func TestA4_HostileArguments(t *testing.T) {
	for name, c := range map[string]struct {
		good   string
		decode func([]byte) error
	}{
		"memory_reflect": {`{"action":"add","agent_id":"a","agent":"b","text":"x","confidence":"verified"}`, func(b []byte) error { _, err := memory.ParseReflect(b); return err }},
		"memory_add":     {`{"agent_id":"a","text":"x","confidence":"verified"}`, func(b []byte) error { _, err := memory.ParseAdd(b, "own"); return err }},
		"memory_alias":   {`{"agent_id":"a","term":"DB","equivalents":["database"]}`, func(b []byte) error { _, err := memory.ParseAlias(b, "own"); return err }},
		"checkpoint_save": {`{"agent_id":"a","state":"{}"}`, func(b []byte) error {
			_, err := checkpoint.ParseSave(b, "own")
			return err
		}},
		"checkpoint_resume": {`{"agent_id":"a"}`, func(b []byte) error { _, err := checkpoint.ParseResume(b, "own"); return err }},
		"raw_memory_add":    {rawAdd, func(b []byte) error { _, err := rawmemory.ParseAdd(b, "s"); return err }},
	} {
		t.Run(name, func(t *testing.T) {
			if err := c.decode([]byte(c.good)); err != nil {
				t.Fatalf("the good one: %v", err)
			}
			taken := map[hostile.Kind]string{}
			cases := hostile.JSON([]byte(c.good))
			for i := range cases {
				if len(cases[i].In) == 0 && cases[i].Kind == hostile.Cut {
					cases[i].Kind = hostile.Swap // no arguments are an empty object
				}
			}
			hostile.Check(t, cases, taken, func(b []byte) error {
				err := c.decode(b)
				if err != nil && refusal.CodeOf(err) == "" {
					t.Fatalf("no error object: %v", err)
				}
				return err
			})
		})
	}
}

const rawAdd = `{"sessionId":"s","prompt":"p","thought":"t","response":"r","agent":"a","model":"m","amountToolCalls":2,"toolsUsed":["grep"],"sourceAgentIdentities":["a"],"timestamp":"2026-01-02T03:04:05Z"}`

// TestA4_HostileCursors: cursors and ids come back from clients, who may have
// changed them.
func TestA4_HostileCursors(t *testing.T) {
	projections, _ := query.Default()
	r := foldtest.NewReplica(projections...)
	good := goodBodies(t)
	for seq, name := range []string{"event", "fact", "checkpoint", "event", "fact", "checkpoint"} {
		body := good[name].body
		if name == "fact" && seq > 2 {
			op, err := memory.NewAdd(hostileAuthor, memory.Fact{Namespace: "a", Text: "y"})
			if err != nil {
				t.Fatal(err)
			}
			body = op.Body
		}
		if err := r.Apply(foldtest.Entry(1, uint64(seq+1), foldtest.At(int64(seq)), good[name].kind, hostileAuthor, body)); err != nil {
			t.Fatal(err)
		}
	}
	events, err := logstream.List(r, logstream.Filter{Limit: 1})
	if err != nil || events.NextCursor == "" {
		t.Fatal(events, err)
	}
	facts, err := memory.List(r, memory.Filter{Namespaces: []string{"a"}, Limit: 1})
	if err != nil || facts.NextCursor == "" {
		t.Fatal(facts, err)
	}
	for name, c := range map[string]struct {
		good string
		read func(string) error
	}{
		"events": {events.NextCursor, func(s string) error { _, err := logstream.List(r, logstream.Filter{Cursor: s}); return err }},
		"facts": {facts.NextCursor, func(s string) error {
			_, err := memory.List(r, memory.Filter{Namespaces: []string{"a"}, Cursor: s})
			return err
		}},
		"merges": {"bWVyZ2VzIDEgMA", func(s string) error { _, err := merges.List(r, merges.Env{}, merges.Filter{Cursor: s}); return err }},
		"event id": {events.Events[0].ID, func(s string) error {
			_, err := logstream.Find(r, "id", s)
			return err
		}},
		"task":     {"task_1", func(s string) error { _, err := claim.Get(r, s, claim.Horizon{}, nil); return err }},
		"identity": {hostileAuthor, func(s string) error { _, err := identity.Parse(s); return err }},
	} {
		t.Run(name, func(t *testing.T) {
			cases := append(hostile.Bytes([]byte(c.good)), hostile.Case{Kind: hostile.Many, Name: "long", In: []byte(strings.Repeat(c.good, 5000))})
			const why = "a beginning may be another place, an empty one is the first page"
			hostile.Check(t, cases, map[hostile.Kind]string{hostile.Cut: why, hostile.Behind: why}, func(b []byte) error {
				err := c.read(string(b))
				if err != nil && refusal.CodeOf(err) == "" {
					t.Fatalf("a bad one is a failure of the store: %v", err)
				}
				return err
			})
		})
	}
}

// FuzzCursors: a place that a client gives back is a page or a refusal.
func FuzzCursors(f *testing.F) {
	projections, _ := query.Default()
	r := foldtest.NewReplica(projections...)
	good := goodBodies(f)
	for seq, name := range []string{"event", "fact", "checkpoint"} {
		if err := r.Apply(foldtest.Entry(1, uint64(seq+1), foldtest.At(int64(seq)), good[name].kind, hostileAuthor, good[name].body)); err != nil {
			f.Fatal(err)
		}
	}
	f.Add("bWVyZ2VzIDEgMA")
	f.Add("m0." + strings.Repeat("A", 86))
	f.Add(hostileAuthor)
	f.Fuzz(func(t *testing.T, s string) {
		check := func(err error) {
			if err != nil && refusal.CodeOf(err) == "" {
				t.Fatalf("%q is a failure of the store: %v", s, err)
			}
		}
		_, err := memory.List(r, memory.Filter{Namespaces: []string{"a"}, Cursor: s})
		check(err)
		_, err = merges.List(r, merges.Env{}, merges.Filter{Cursor: s})
		check(err)
		_, err = checkpoint.List(r, checkpoint.Filter{Namespace: "a", Cursor: s})
		check(err)
		_, err = logstream.Find(r, "id", s)
		check(err)
		_, err = identity.Parse(s)
		check(err)
	})
}
