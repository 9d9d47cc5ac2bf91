// Package storms holds that fini's memory and its time stay bounded, however much it forwards, reaps or kills.
package storms
