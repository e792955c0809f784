package delegation_test

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"tallystick/query/delegation"
	"tallystick/query/internal/foldtest"
	"tallystick/query/logstream"
	"tallystick/query/refusal"
)

const author = "mac:claude:x"

func good() delegation.Request {
	return delegation.Request{Project: "x", To: "*", Goal: "Mend the parser!", Branch: "main", BaseCommit: "1F3C2D0", Done: "go test passes"}
}

// stored is the event that a request becomes.
func stored(t testing.TB, r delegation.Request) logstream.Record {
	t.Helper()
	op, err := delegation.NewOp(author, r)
	if err != nil {
		t.Fatal(err)
	}
	rep := foldtest.NewReplica(logstream.View{})
	e := foldtest.Entry(1, 1, foldtest.At(0), op.Kind, author, op.Body)
	if err := rep.Apply(e); err != nil {
		t.Fatal(err)
	}
	rec, err := logstream.NewRecord(rep, &e, nil)
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

func TestRequest(t *testing.T) {
	r := stored(t, good())
	if r.Type != "task.request" || r.Stream != "project/x" || r.Room != "delegation" || r.Status != "open" || r.BaseCommit != "1f3c2d0" {
		t.Errorf("%+v", r)
	}
	if string(r.Metadata) != `{"project":"x","goal":"Mend the parser!","done":"go test passes"}` || r.Body != "Mend the parser!\n\nDone when: go test passes" {
		t.Errorf("%s\n%s", r.Metadata, r.Body)
	}
	if !regexp.MustCompile(`^task_mend_the_parser_[0-9a-f]{8}$`).MatchString(r.Correlation) {
		t.Errorf("correlation %s", r.Correlation)
	}
	long := good()
	long.Project, long.Goal = "project/x", strings.Repeat("ab ", 100)
	if r := stored(t, long); len(r.Correlation) != 5+40+1+8 || r.Stream != "project/x" {
		t.Errorf("correlation %s in %s", r.Correlation, r.Stream)
	}
	bare := good()
	bare.Goal = "日本"
	if r := stored(t, bare); !regexp.MustCompile(`^task_[0-9a-f]{8}$`).MatchString(r.Correlation) {
		t.Errorf("correlation %s", r.Correlation)
	}
}

func TestRequestRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*delegation.Request)
		field  string
		code   refusal.Code
	}{
		"no project":     {func(r *delegation.Request) { r.Project = "project/" }, "project", refusal.InvalidArgument},
		"long project":   {func(r *delegation.Request) { r.Project = strings.Repeat("x", 249) }, "project", refusal.TooLarge},
		"nobody":         {func(r *delegation.Request) { r.To = " " }, "to_agent", refusal.InvalidArgument},
		"no goal":        {func(r *delegation.Request) { r.Goal = "\n" }, "goal", refusal.InvalidArgument},
		"long goal":      {func(r *delegation.Request) { r.Goal = strings.Repeat("x", 16<<10+1) }, "goal", refusal.TooLarge},
		"NUL":            {func(r *delegation.Request) { r.Done = "a\x00b" }, "done", refusal.InvalidArgument},
		"no branch":      {func(r *delegation.Request) { r.Branch = "" }, "branch", refusal.InvalidArgument},
		"two lines":      {func(r *delegation.Request) { r.Branch = "a\nb" }, "branch", refusal.InvalidArgument},
		"no commit":      {func(r *delegation.Request) { r.BaseCommit = "" }, "base_commit", refusal.InvalidArgument},
		"six digits":     {func(r *delegation.Request) { r.BaseCommit = "1f3c2d" }, "base_commit", refusal.InvalidArgument},
		"65 digits":      {func(r *delegation.Request) { r.BaseCommit = strings.Repeat("a", 65) }, "base_commit", refusal.InvalidArgument},
		"a branch in it": {func(r *delegation.Request) { r.BaseCommit = "main~12" }, "base_commit", refusal.InvalidArgument},
		"no done":        {func(r *delegation.Request) { r.Done = "" }, "done", refusal.InvalidArgument},
	} {
		r := good()
		c.change(&r)
		_, err := delegation.NewOp(author, r)
		var e *refusal.Error
		if !errors.As(err, &e) || e.Field != c.field || e.Code != c.code || e.Hint == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, n := range []int{7, 64} {
		r := good()
		r.BaseCommit = strings.Repeat("a", n)
		if _, err := delegation.NewOp(author, r); err != nil {
			t.Errorf("%d digits: %v", n, err)
		}
	}
	if _, err := delegation.NewOp("", good()); refusal.CodeOf(err) != refusal.IdentityUnbound {
		t.Errorf("without author: %v", err)
	}
}

func ExampleHandoff() {
	r := logstream.Record{
		ID: "evt_20260102T030405_0123456789ab", Correlation: "task_mend_0a1b2c3d", Stream: "project/x", ToAgent: "*", Branch: "main", BaseCommit: "1f3c2d0",
	}
	fmt.Println(delegation.Handoff(&r))
	// Output: task_mend_0a1b2c3d in project/x is for whoever takes it: claim it with event_ack event_id evt_20260102T030405_0123456789ab status claimed, begin from main at 1f3c2d0, and close it with status applied.
}
