package replica_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"tallystick/oplog"
	"tallystick/replica"
)

// words is the smallest useful domain: it keeps the bodies of kind "word".
type words struct{}

func (words) Name() string    { return "words" }
func (words) Version() uint32 { return 1 }
func (words) Kinds() []string { return []string{"word"} }
func (words) Apply(tx oplog.Tx, e *oplog.Entry) error {
	ref := e.Ref()
	return tx.Insert(ref[:], e.Body)
}

// Two replicas in one process: the second joins by an invite of the first and
// reads what the first has written.
func Example() {
	dir, err := os.MkdirTemp("", "tally-example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	config := func(label string) replica.Config {
		return replica.Config{
			Dir: filepath.Join(dir, label, "data"), Label: label, Listen: "127.0.0.1:0", Static: true,
			Projections: []oplog.Projection{words{}},
		}
	}
	ctx := context.Background()

	desk, err := replica.Open(ctx, config("desk"))
	if err != nil {
		log.Fatal(err)
	}
	defer desk.Close()
	invite, err := desk.Invite(ctx, replica.InviteOptions{})
	if err != nil {
		log.Fatal(err)
	}
	joined, err := replica.Join(ctx, config("laptop"), invite.Token)
	if err != nil {
		log.Fatal(err)
	}
	laptop, err := replica.Open(ctx, config("laptop"))
	if err != nil {
		log.Fatal(err)
	}
	defer laptop.Close()

	// The body is msgpack; "\xa5hello" is a string of five.
	_, err = desk.Append(ctx, oplog.Op{Kind: "word", Author: "desk:me:demo", Version: 1, Body: []byte("\xa5hello")})
	if err != nil {
		log.Fatal(err)
	}
	for word := ""; word == ""; {
		changed := laptop.Changed() // before the look, so that nothing is missed
		err := laptop.View(func(s oplog.Snapshot) error {
			return s.View("words").Scan(nil, nil, false, func(_, body []byte) (bool, error) {
				word = string(body[1:])
				return false, nil
			})
		})
		if err != nil {
			log.Fatal(err)
		}
		if word == "" {
			<-changed
			continue
		}
		fmt.Printf("%s, admitted by %s, reads %q\n", joined.Label, joined.Inviter, word)
	}
	// Output: laptop, admitted by desk, reads "hello"
}
