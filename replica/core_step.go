package replica

import (
	"time"

	"tallystick/hlc"
	"tallystick/oplog"
)

// Core holds the state of replication. See the top of core.go.
type Core struct{ cfg CoreConfig }

// NewCore returns a core that knows what the log holds and has no peers.
func NewCore(cfg CoreConfig) *Core { return &Core{cfg: cfg} }

func (c *Core) PeerUp(now Now, s SessionID, key oplog.DeviceKey, dialed bool) Output { return Output{} }
func (c *Core) PeerDown(now Now, s SessionID) Output                                 { return Output{} }
func (c *Core) Step(now Now, s SessionID, m Message) Output                          { return Output{} }
func (c *Core) Heard(now Now, s SessionID) Output                                    { return Output{} }
func (c *Core) Tick(now Now) Output                                                  { return Output{} }
func (c *Core) Wake() time.Duration                                                  { return 0 }
func (c *Core) LocalCommit(now Now, head oplog.Head) Output                          { return Output{} }
func (c *Core) AskFloor(now Now, above hlc.Timestamp) Output                         { return Output{} }
func (c *Core) RangeRead(now Now, e ReadRange, r oplog.Range, err error) Output      { return Output{} }
func (c *Core) Ingested(now Now, e Ingest, res oplog.IngestResult, err error) Output { return Output{} }
func (c *Core) HeadStored(now Now, e PutHead, changed bool, err error) Output        { return Output{} }
func (c *Core) FloorRaised(now Now, e RaiseFloor, h oplog.Head, err error) Output    { return Output{} }
func (c *Core) SetGossip(epoch uint64, key []byte)                                   {}
func (c *Core) Status(now Now) CoreStatus                                            { return CoreStatus{} }
func (c *Core) DurableOn(o oplog.OriginID, seq uint64) (on, notYet []oplog.DeviceKey) {
	return nil, nil
}
