#!/bin/sh
# the village, made up
tc qdisc del dev eth0 root
sudo tc qdisc add dev eth0 root netem \
    rate 500kbit delay 30ms 5ms distribution normal loss 1%
tc qdisc add dev ifb0 root tbf rate 3mbit burst 32kbit latency 400ms
