package cluster

type writer struct{ b []byte }
