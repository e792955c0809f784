package engines

import (
	"errors"
	"time"

	"context"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

type jet struct {
	srv  *server.Server
	conn *nats.Conn
	js   jetstream.JetStream
}

// JetStream runs a NATS server in this process, without a network, with one
// stream in files that syncs every message before it answers.
func JetStream(dir string) (Engine, error) {
	srv, err := server.NewServer(&server.Options{
		DontListen: true, JetStream: true, StoreDir: dir, SyncAlways: true, NoSigs: true, NoLog: true,
		JetStreamMaxMemory: 256 << 20, JetStreamMaxStore: 8 << 30,
	})
	if err != nil {
		return nil, err
	}
	srv.Start()
	if !srv.ReadyForConnections(10 * time.Second) {
		return nil, errors.New("the NATS server does not get ready")
	}
	conn, err := nats.Connect("", nats.InProcessServer(srv))
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(conn)
	if err != nil {
		return nil, err
	}
	_, err = js.CreateStream(context.Background(), jetstream.StreamConfig{Name: "log", Subjects: []string{"log"}, Storage: jetstream.FileStorage})
	return &jet{srv, conn, js}, err
}

func (j *jet) Append(payloads ...[]byte) error {
	acks := make([]jetstream.PubAckFuture, 0, len(payloads))
	if len(payloads) == 1 {
		_, err := j.js.Publish(context.Background(), "log", payloads[0])
		return err
	}
	for _, p := range payloads {
		ack, err := j.js.PublishAsync("log", p)
		if err != nil {
			return err
		}
		acks = append(acks, ack)
	}
	for _, a := range acks {
		select {
		case <-a.Ok():
		case err := <-a.Err():
			return err
		}
	}
	return nil
}

func (j *jet) Close() error {
	j.conn.Close()
	j.srv.Shutdown()
	j.srv.WaitForShutdown()
	return nil
}
