package cluster

import "errors"

type opCode byte

func (FoundCluster) code() opCode    { return 1 }
func (RegisterNode) code() opCode    { return 2 }
func (CreateTopic) code() opCode     { return 3 }
func (AlterTopic) code() opCode      { return 4 }
func (DeleteTopic) code() opCode     { return 5 }
func (ChangePartition) code() opCode { return 6 }
func (PutEntry) code() opCode        { return 7 }
func (DeleteEntry) code() opCode     { return 8 }

func (FoundCluster) encode(*writer)    {}
func (RegisterNode) encode(*writer)    {}
func (CreateTopic) encode(*writer)     {}
func (AlterTopic) encode(*writer)      {}
func (DeleteTopic) encode(*writer)     {}
func (ChangePartition) encode(*writer) {}
func (PutEntry) encode(*writer)        {}
func (DeleteEntry) encode(*writer)     {}

func (FoundCluster) apply(*State) Result    { return Result{Err: errors.New("not yet")} }
func (RegisterNode) apply(*State) Result    { return Result{Err: errors.New("not yet")} }
func (CreateTopic) apply(*State) Result     { return Result{Err: errors.New("not yet")} }
func (AlterTopic) apply(*State) Result      { return Result{Err: errors.New("not yet")} }
func (DeleteTopic) apply(*State) Result     { return Result{Err: errors.New("not yet")} }
func (ChangePartition) apply(*State) Result { return Result{Err: errors.New("not yet")} }
func (PutEntry) apply(*State) Result        { return Result{Err: errors.New("not yet")} }
func (DeleteEntry) apply(*State) Result     { return Result{Err: errors.New("not yet")} }
