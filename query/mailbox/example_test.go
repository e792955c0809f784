package mailbox_test

import (
	"fmt"

	"tallystick/oplog"
	"tallystick/query/internal/foldtest"
	"tallystick/query/logstream"
	"tallystick/query/mailbox"
)

func Example() {
	ev := logstream.Event{
		Type: mailbox.TypeMessage, Stream: "mail", Room: "mail", To: "nas:codex:x", Body: "Please look.",
		Metadata: []byte(`{"subject":"Review","priority":"normal"}`),
	}
	r := foldtest.NewReplica(mailbox.View{})
	if err := r.Apply([]oplog.Entry{foldtest.Entry(1, 1, foldtest.At(0), logstream.KindEvent, "mac:claude:x", ev.Append(nil))}...); err != nil {
		fmt.Println(err)
	}
	page, err := mailbox.List(r, mailbox.Query{Owner: "nas:codex:x"})
	if err != nil {
		fmt.Println(err)
	}
	for _, m := range page.Messages {
		fmt.Println(m.Status, m.From, m.Subject)
	}
	fmt.Println(page.Unread, "unread")
	// Output:
	// unread mac:claude:x Review
	// 1 unread
}
