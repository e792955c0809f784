package artifact_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"tallystick/oplog"
	"tallystick/query/artifact"
	"tallystick/query/internal/foldtest"
	"tallystick/query/refusal"
)

// here is content by hash, whole or not.
type here map[oplog.Hash]oplog.BlobState

func (h here) BlobState(x oplog.Hash) (oplog.BlobState, error) { return h[x], nil }

func sum(s string) oplog.Hash { return sha256.Sum256([]byte(s)) }

func entry(device byte, seq uint64, ms int64, a artifact.Artifact) oplog.Entry {
	return foldtest.Entry(device, seq, foldtest.At(ms), artifact.Kind, "mac:claude:x", a.Append(nil))
}

func replica(t rapid.TB, entries ...oplog.Entry) *foldtest.Replica {
	t.Helper()
	r := foldtest.NewReplica(artifact.View{})
	if err := r.Apply(entries...); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestPayloadRoundTrip(t *testing.T) {
	for _, a := range []artifact.Artifact{
		{Kind: "patch", Hash: sum("x"), Size: 1},
		{Kind: "note", Hash: sum("y"), Size: artifact.MaxContent, Metadata: json.RawMessage(`{"a":1}`), Warnings: []string{artifact.WarnCR, artifact.WarnNoNewline}},
	} {
		e := entry(1, 1, 0, a)
		got, err := artifact.Decode(&e)
		if err != nil || !reflect.DeepEqual(got, a) {
			t.Errorf("%+v became %+v, %v", a, got, err)
		}
		if names := (artifact.View{}).Blobs(&e); len(names) != 1 || names[0] != (oplog.BlobName{Hash: a.Hash, Size: a.Size}) {
			t.Errorf("names %v", names)
		}
	}
}

// L6: what does not fit is set aside and names no content.
func TestL6_BadArtifactsAreSetAside(t *testing.T) {
	good := artifact.Artifact{Kind: "log", Hash: sum("x"), Size: 1}
	change := func(fn func(*artifact.Artifact)) oplog.Entry {
		a := good
		fn(&a)
		return entry(1, 1, 0, a)
	}
	newer, nobody, cut := entry(1, 1, 0, good), entry(1, 1, 0, good), entry(1, 1, 0, good)
	newer.Version = 1
	nobody.Author = ""
	cut.Body = cut.Body[:len(cut.Body)-1]
	for name, e := range map[string]oplog.Entry{
		"kind":     change(func(a *artifact.Artifact) { a.Kind = "virus" }),
		"empty":    change(func(a *artifact.Artifact) { a.Size = 0 }),
		"large":    change(func(a *artifact.Artifact) { a.Size = artifact.MaxContent + 1 }),
		"metadata": change(func(a *artifact.Artifact) { a.Metadata = json.RawMessage(`[1]`) }),
		"nul":      change(func(a *artifact.Artifact) { a.Metadata = json.RawMessage(`{"a":"\u0000"}`) }),
		"warning":  change(func(a *artifact.Artifact) { a.Warnings = []string{"a\x00b"} }),
		"many":     change(func(a *artifact.Artifact) { a.Warnings = make([]string, 9) }),
		"newer":    newer,
		"nobody":   nobody,
		"cut":      cut,
	} {
		var q *oplog.QuarantineError
		if err := (artifact.View{}).Apply(foldtest.NewTx(), &e); !errors.As(err, &q) {
			t.Errorf("%s: %v", name, err)
		}
		if names := (artifact.View{}).Blobs(&e); names != nil {
			t.Errorf("%s names %v", name, names)
		}
	}
}

func TestValidate(t *testing.T) {
	good := artifact.Artifact{Kind: "file", Hash: sum("x"), Size: 1}
	if _, err := artifact.NewOp("mac:claude:x", good); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		author string
		change func(*artifact.Artifact)
		code   refusal.Code
		field  string
	}{
		"unbound":  {"", func(*artifact.Artifact) {}, refusal.IdentityUnbound, "author"},
		"kind":     {"a-b", func(a *artifact.Artifact) { a.Kind = "Patch" }, refusal.InvalidArgument, "kind"},
		"empty":    {"a-b", func(a *artifact.Artifact) { a.Size = 0 }, refusal.InvalidArgument, "content"},
		"large":    {"a-b", func(a *artifact.Artifact) { a.Size = artifact.MaxContent + 1 }, refusal.TooLarge, "content"},
		"metadata": {"a-b", func(a *artifact.Artifact) { a.Metadata = json.RawMessage(`"x"`) }, refusal.InvalidArgument, "metadata"},
		"long": {"a-b", func(a *artifact.Artifact) {
			a.Metadata = json.RawMessage(`{"a":"` + strings.Repeat("x", 64<<10) + `"}`)
		}, refusal.TooLarge, "metadata"},
		"nul": {"a-b", func(a *artifact.Artifact) { a.Metadata = json.RawMessage(`{"a":"\u0000"}`) }, refusal.InvalidArgument, "metadata"},
	} {
		a := good
		c.change(&a)
		_, err := artifact.NewOp(c.author, a)
		e, ok := refusal.As(err)
		if !ok || e.Code != c.code || e.Field != c.field || e.Hint == "" {
			t.Errorf("%s: %+v", name, err)
		}
	}
}

func TestWarningsAreAboutPatches(t *testing.T) {
	for text, want := range map[string][]string{
		"a\nb\n":   nil,
		"a\nb":     {artifact.WarnNoNewline},
		"a\r\nb\n": {artifact.WarnCR},
		"a\rb":     {artifact.WarnNoNewline, artifact.WarnCR},
	} {
		var s artifact.Scanner
		for i := range len(text) { // however it is cut
			s.Write([]byte(text[i : i+1]))
		}
		if got := s.Warnings("patch"); !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %v", text, got)
		}
		if got := s.Warnings("log"); got != nil {
			t.Errorf("a log warns: %v", got)
		}
	}
}

func TestFindGetAndList(t *testing.T) {
	a := artifact.Artifact{Kind: "patch", Hash: sum("x"), Size: 5}
	early, late := entry(2, 1, 100, a), entry(1, 1, 900, a) // one second, one content
	other := entry(1, 2, 5000, artifact.Artifact{Kind: "log", Hash: sum("y"), Size: 7})
	r := replica(t, late, other, early)
	id := artifact.ID(late.Ref(), a.Hash)
	if id != artifact.ID(early.Ref(), a.Hash) || !strings.HasPrefix(id, "art_20260101T000000_") {
		t.Fatalf("ids %s, %s", id, artifact.ID(early.Ref(), a.Hash))
	}
	blobs := here{a.Hash: {Known: true, Whole: true, Size: 5}, sum("y"): {Known: true, Size: 7, Have: 3}}
	got, err := artifact.Get(r, "artifact_id", id, blobs, nil)
	if err != nil || got.HLC != early.Ref().Stamp().String() || !got.Here || got.SHA256 != a.Hash.String() || got.Note != "" {
		t.Errorf("%+v, %v; want the earlier one", got, err)
	}
	page, err := artifact.List(r, 0, 0, blobs, nil)
	if err != nil || page.Count != 3 || page.Artifacts[0].Kind != "log" || page.HasMore {
		t.Fatalf("%+v, %v", page, err)
	}
	if log := page.Artifacts[0]; log.Here || log.Have != 3 || log.Note == "" {
		t.Errorf("content that is on its way: %+v", log)
	}
	first, err := artifact.List(r, 2, 0, blobs, nil)
	if err != nil || first.Count != 2 || !first.HasMore || first.NextOffset != 2 {
		t.Fatalf("%+v, %v", first, err)
	}
	second, err := artifact.List(r, 2, first.NextOffset, blobs, nil)
	if err != nil || second.Count != 1 || second.HasMore || second.Artifacts[0].HLC != early.Ref().Stamp().String() {
		t.Errorf("%+v, %v", second, err)
	}
	blobs[a.Hash] = oplog.BlobState{Known: true, Whole: true, Size: 6}
	if got, err := artifact.Get(r, "artifact_id", id, blobs, nil); err != nil || got.Size != 6 || got.Note == "" {
		t.Errorf("another size than told: %+v, %v", got, err)
	}
	for bad, code := range map[string]refusal.Code{
		"": refusal.InvalidArgument, "art_": refusal.InvalidArgument, strings.ToUpper(id): refusal.InvalidArgument,
		"evt_20260101T000000_0123456789ab": refusal.InvalidArgument, "art_20260101 000000": refusal.InvalidArgument,
		"art_20260101T000001" + id[19:]: refusal.NotFound, id[:31] + "g": refusal.NotFound, id + "0": refusal.NotFound,
		"art_20261301T000000_0123456789ab": refusal.NotFound,
	} {
		if _, err := artifact.Get(r, "artifact_id", bad, blobs, nil); refusal.CodeOf(err) != code {
			t.Errorf("%q: %v, want %s", bad, err, code)
		}
	}
	if err := artifact.CheckKnown(r, "artifact_ids", []string{id, id}); err != nil {
		t.Error(err)
	}
	if err := artifact.CheckKnown(r, "artifact_ids", []string{id, "art_20260101T000000_0123456789ab"}); refusal.CodeOf(err) != refusal.NotFound {
		t.Errorf("unknown id: %v", err)
	}
}

// TestM1_SameRowsInAnyOrder folds the same artifacts in two orders.
func TestM1_SameRowsInAnyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all []oplog.Entry
		seq := map[byte]uint64{}
		for range rapid.IntRange(1, 30).Draw(t, "n") {
			device := byte(rapid.IntRange(0, 2).Draw(t, "device"))
			seq[device]++
			all = append(all, entry(device, seq[device], int64(seq[device])*300, artifact.Artifact{
				Kind: rapid.SampledFrom(append(artifact.Kinds(), "other")).Draw(t, "kind"),
				Hash: sum(fmt.Sprint(rapid.IntRange(0, 3).Draw(t, "content"))), Size: 1,
			}))
		}
		a, b := replica(t, all...), replica(t, rapid.Permutation(all).Draw(t, "order")...)
		if x, y := a.Tx(artifact.ViewName).Dump(), b.Tx(artifact.ViewName).Dump(); x != y {
			t.Fatalf("rows differ\n%s\n---\n%s", x, y)
		}
		x, err := artifact.List(a, 0, 0, here{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		y, err := artifact.List(b, 0, 0, here{}, nil)
		if err != nil || !reflect.DeepEqual(x, y) {
			t.Fatalf("lists differ: %v", err)
		}
		for _, r := range x.Artifacts {
			p, err := artifact.Get(a, "id", r.ID, here{}, nil)
			q, err2 := artifact.Get(b, "id", r.ID, here{}, nil)
			if err != nil || err2 != nil || !reflect.DeepEqual(p, q) {
				t.Fatalf("%s: %+v, %v; %+v, %v", r.ID, p, err, q, err2)
			}
		}
	})
}

// T5: an erased artifact is gone from the list, by id, and with its content.
func TestT5_ErasedArtifactIsAbsent(t *testing.T) {
	ctx := context.Background()
	log, err := oplog.Open(ctx, oplog.Config{
		InMemory: true, Signer: ed25519.NewKeyFromSeed(make([]byte, 32)), Projections: []oplog.Projection{artifact.View{}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	h, n, err := log.PutBlob(ctx, bytes.NewReader([]byte("secret")), -1)
	if err != nil {
		t.Fatal(err)
	}
	op, err := artifact.NewOp("mac:claude:x", artifact.Artifact{Kind: "note", Hash: h, Size: n})
	if err != nil {
		t.Fatal(err)
	}
	done, err := log.Append(ctx, op)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := log.Erase(ctx, "mac:claude:x", "", "a secret", done[0].Hash); err != nil {
		t.Fatal(err)
	}
	err = log.View(func(s oplog.Snapshot) error {
		page, err := artifact.List(s, 0, 0, log, nil)
		if err == nil && page.Count != 0 {
			t.Errorf("listed: %+v", page)
		}
		if _, err := artifact.Get(s, "artifact_id", artifact.ID(done[0].Ref, h), log, nil); refusal.CodeOf(err) != refusal.NotFound {
			t.Errorf("by id: %v", err)
		}
		return err
	})
	if err != nil || log.HasBlob(h) {
		t.Errorf("%v, content here: %v", err, log.HasBlob(h))
	}
}
