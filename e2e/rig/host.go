package rig

import (
	"testing"
)

// Variables are for the server, beside those that a host hands on by itself.
type Variables map[string]string

// Offline is the environment in which npx has only what is installed here.
func Offline(t *testing.T) Variables {
	return Variables{"npm_config_offline": "true", "npm_config_cache": t.TempDir()}
}
